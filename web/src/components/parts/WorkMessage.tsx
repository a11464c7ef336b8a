// The message of a turn that the agent started by itself, mostly because work in the background has ended.

import type { Message } from '../../ahp/types';
import { plainText } from '../../format';
import { reportedWork } from '../../host-metadata';
import { TerminalIcon } from '../Icons';
import { LongText } from '../LongText';

export function WorkMessage({ message }: { message: Message }) {
  const work = reportedWork(message);
  const text = plainText(message.text);
  const status = work?.status ?? '';
  return (
    <div class="work-message" data-work-status={status}>
      <div class="work-head">
        <TerminalIcon />
        <span class="work-title">{work ? `Background ${work.kind}: ${work.label || 'unnamed'}` : 'Background'}</span>
        {status && <span class={`work-status is-${isBad(status) ? 'bad' : 'good'}`}>{status}</span>}
      </div>
      {text && text !== work?.label && (
        <div class="work-summary">
          <LongText text={text} />
        </div>
      )}
    </div>
  );
}

function isBad(status: string): boolean {
  return ['failed', 'killed', 'stopped', 'error'].includes(status);
}
