// What can be done about the error that ended the newest turn: resume it, send its message again, or restart the agent.

import { useSignal } from '@preact/signals';

import type { ErrorPart } from '../../ahp/types';
import type { Page } from '../../page';
import { RestartIcon } from '../Icons';

export function ErrorActions({ page, part }: { page: Page; part: ErrorPart }) {
  const pending = useSignal(false);
  const turn = page.chat.peek()?.turns.at(-1);
  if (!turn) return null;
  const resumable = part.resumable === true;
  const isUsers = turn.message?.origin?.kind === 'user';
  const canRestart = page.stopping.canRestart.value && concernsAgent(part.error?.errorType);
  const { isRestarting } = page.stopping;
  const isSending = page.outgoing.value.some(({ session, kind }) => session === page.selected.peek() && kind === 'turn');
  const blocked = pending.value || isSending;
  // A second click must not send the message twice.
  const once = async (action: () => Promise<void>) => {
    if (blocked || pending.peek()) return;
    pending.value = true;
    await action().finally(() => {
      pending.value = false;
    });
  };
  return (
    <div class="error-actions">
      {resumable && (
        <button
          type="button"
          class="small is-wanted"
          title="The agent goes on with this turn"
          aria-disabled={blocked}
          onClick={() => void once(() => page.resume(turn.id))}
        >
          Resume
        </button>
      )}
      {!resumable && isUsers && (
        <button
          type="button"
          class="small is-wanted"
          title="Sends the message again, in a new turn"
          aria-disabled={blocked}
          onClick={() => void once(() => page.retry(turn.message))}
        >
          Retry
        </button>
      )}
      {isUsers && (
        <button
          type="button"
          class="small"
          title="Puts the message into the message box"
          onClick={() => {
            page.reuse(turn.message.text);
            document.getElementById('composer')?.focus();
          }}
        >
          Edit message
        </button>
      )}
      {canRestart && (
        <button
          type="button"
          class="small"
          title="Ends the agent's process; the next message starts a new one"
          aria-disabled={isRestarting}
          onClick={() => void page.stopping.restart()}
        >
          <RestartIcon /> {isRestarting ? 'Restarting…' : `Restart ${page.agentName.value}`}
        </button>
      )}
    </div>
  );
}

/** Whether the error is about the agent or its runtime. A new process does not help against errors of the model. */
function concernsAgent(errorType: unknown): boolean {
  return typeof errorType === 'string' && /^(agent|runtime|internal)/.test(errorType) && errorType !== 'agent_restarted';
}
