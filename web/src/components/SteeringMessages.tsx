// Messages on their way into the running turn: shown below it until the agent has taken them, when they become a part of
// the turn.

import type { Page } from '../page';
import { attachmentNames } from '../page/attachments';
import { isCommand } from '../page/commands';
import { UserMessage } from './TurnView';

export function SteeringMessages({ page }: { page: Page }) {
  const waiting = page.running.value ? page.steering.value : undefined;
  const selected = page.selected.value;
  const sending = page.outgoing.value.filter((each) => each.session === selected && each.kind === 'steering');
  if (!waiting && sending.length === 0) return null;
  return (
    <div class="steering">
      {waiting && (
        <UserMessage
          text={waiting.message?.text ?? ''}
          attachments={attachmentNames(waiting.message)}
          note={isCommand(waiting.message?.text ?? '') ? 'Starts after this turn.' : 'Waits for the agent to take it into this turn.'}
        >
          {' '}
          <button type="button" class="text-button" onClick={() => void page.waiting.takeBack('steering', waiting)}>
            Take back
          </button>
        </UserMessage>
      )}
      {sending.map((each) => (
        <UserMessage key={each.id} text={each.message.text} attachments={attachmentNames(each.message)} note="Sending…" />
      ))}
    </div>
  );
}
