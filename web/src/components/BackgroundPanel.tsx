// Commands and subagents that run in the background: one line above the composer; the entries on request.

import { useSignal } from '@preact/signals';

import type { BackgroundWork } from '../ahp/types';
import { ago, oneLine } from '../format';
import type { Page } from '../page';
import { StopIcon } from './Icons';
import { MoreList } from './MoreList';
import { useNow } from './use-now';

/** The entries that are shown at first, and with every further click. */
const SHOWN_WORK = 20;
/** The entries that are named in the closed panel. */
const NAMED_WORK = 5;
const COMMAND_CHARACTERS = 300;

export function BackgroundPanel({ page }: { page: Page }) {
  const work = page.backgroundWork.value;
  return work && work.length > 0 ? <WorkList page={page} work={work} /> : null;
}

function WorkList({ page, work }: { page: Page; work: readonly BackgroundWork[] }) {
  const open = useSignal(false);
  const now = useNow();
  const canStop = page.stopping.canStop.value;
  const running = page.running.value;
  return (
    <details class="panel background" open={open.value} onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>
        <span class="panel-mark" aria-hidden="true" />
        <span class="panel-count">In the background: {work.length.toLocaleString()}</span>
        <span class="panel-preview">{preview(work)}</span>
      </summary>
      <ul aria-label="Background work">
        <MoreList items={work} step={SHOWN_WORK} what="entries">
          {(each) => <WorkEntry key={each.id} page={page} work={each} now={now} />}
        </MoreList>
      </ul>
      {canStop && !running && work.length > 1 && (
        <div class="panel-foot">
          <button
            type="button"
            class="small is-risky"
            aria-disabled={page.stopping.isStopping('all')}
            onClick={() => void page.stopping.stop('all')}
          >
            {page.stopping.isStopping('all') ? 'Stopping…' : 'Stop everything'}
          </button>
        </div>
      )}
    </details>
  );
}

function WorkEntry({ page, work, now }: { page: Page; work: BackgroundWork; now: number }) {
  const isStopping = page.stopping.isStopping({ workId: work.id });
  const label = oneLine(work.label) || oneLine(work.command) || 'Unnamed work';
  const command = oneLine(work.command, COMMAND_CHARACTERS);
  return (
    <li class="work">
      <div class="work-text">
        <span class="work-label">{label}</span>
        <span class="work-detail">
          {work.kind === 'subagent' ? 'Subagent' : 'Command'} · {runningSince(work.startedAt, now)}
        </span>
        {command && command !== label && <code>{command}</code>}
      </div>
      {page.stopping.canStop.value && (
        <button
          type="button"
          class="small"
          aria-label={`Stop ${label}`}
          aria-disabled={isStopping}
          onClick={() => void page.stopping.stop({ workId: work.id })}
        >
          <StopIcon /> {isStopping ? 'Stopping…' : 'Stop'}
        </button>
      )}
    </li>
  );
}

function preview(work: readonly BackgroundWork[]): string {
  const labels = work.slice(0, NAMED_WORK).map((each) => oneLine(each.label));
  return labels.join(', ') + (work.length > NAMED_WORK ? ', …' : '');
}

function runningSince(startedAt: string, now: number): string {
  const age = ago(startedAt, now);
  return age === 'now' ? 'just started' : age === '' ? 'running' : `running for ${age}`;
}
