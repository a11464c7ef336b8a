// The list of sessions, and the state of the connection.

import { type Signal, useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

import type { SessionSummary } from '../ahp/types';
import { summaryTotals } from '../edits/file-edits';
import { ACTIVITY_LABEL, activityOf, ago, folderName, oneLine } from '../format';
import { todoProgress, waitingSince } from '../host-metadata';
import type { Page } from '../page';
import { ConnectionBadge } from './ConnectionState';
import { ErrorBoundary } from './ErrorBoundary';
import { LanternIcon, PlusIcon } from './Icons';

/** The newest sessions that are listed at first, and with every further click. */
const LISTED_SESSIONS = 200;
/** How often relative times are updated. */
const CLOCK_MS = 30_000;

export function Sidebar({ page, open }: { page: Page; open: Signal<boolean> }) {
  const now = useSignal(Date.now());
  useEffect(() => {
    const timer = setInterval(() => (now.value = Date.now()), CLOCK_MS);
    return () => clearInterval(timer);
  }, []);

  const listed = useSignal(LISTED_SESSIONS);
  const selected = page.selected.value;
  const rows = page.rows.value;
  const unlisted = selected !== undefined && !page.sessions.value.has(selected);
  const close = () => (open.value = false);

  return (
    <>
      <div class="scrim" hidden={!open.value} onClick={close} />
      <nav
        class={open.value ? 'sidebar is-open' : 'sidebar'}
        aria-label="Sessions"
        onKeyDown={(event) => event.key === 'Escape' && close()}
      >
        <div class="brand">
          <LanternIcon />
          <span>Innkeeper</span>
        </div>
        <button
          type="button"
          class="new"
          aria-current={selected === undefined ? 'page' : undefined}
          onClick={() => {
            page.select(undefined);
            close();
          }}
        >
          <PlusIcon />
          New session
        </button>
        <ul class="sessions">
          {unlisted && <Row title="New session" status={page.session.value?.status ?? 1} current />}
          {rows.slice(0, listed.value).map((row) => (
            <ErrorBoundary key={row.resource} of={row} fallback={() => <Row title="Unreadable session" status={1} current={false} />}>
              <SessionRow
                row={row}
                now={now.value}
                current={row.resource === selected}
                onSelect={() => {
                  page.select(row.resource);
                  close();
                }}
              />
            </ErrorBoundary>
          ))}
          {rows.length > listed.value && (
            <li>
              <button type="button" class="more" onClick={() => (listed.value += LISTED_SESSIONS)}>
                Show more sessions
              </button>
            </li>
          )}
        </ul>
        {rows.length === 0 && !unlisted && <p class="quiet">Sessions appear here with their first message.</p>}
        <ConnectionBadge page={page} />
      </nav>
    </>
  );
}

interface SessionRowProps {
  row: SessionSummary;
  now: number;
  current: boolean;
  onSelect: () => void;
}

function SessionRow({ row, now, current, onSelect }: SessionRowProps) {
  const title = oneLine(row.title) || 'Untitled session';
  return <Row title={title} status={row.status} current={current} detail={detail(row, now)} onSelect={onSelect} />;
}

interface RowProps {
  title: string;
  status: number;
  current: boolean;
  detail?: string;
  onSelect?: () => void;
}

function Row({ title, status, current, detail, onSelect }: RowProps) {
  const activity = activityOf(status);
  return (
    <li>
      <button type="button" class="row" aria-current={current ? 'page' : undefined} onClick={onSelect}>
        <span class={`dot is-${activity}`} role="img" aria-label={ACTIVITY_LABEL[activity]} />
        <span class="row-text">
          <span class="row-title">{title}</span>
          {detail && <span class="row-detail">{detail}</span>}
        </span>
      </button>
    </li>
  );
}

function detail(row: SessionSummary, now: number): string {
  const directory = row.workingDirectories?.[0];
  const activity = activityOf(row.status);
  const label = activity === 'idle' ? undefined : ACTIVITY_LABEL[activity];
  // A session that waits for the user says so, whatever its agent reports.
  const what = activity === 'waiting' ? waiting(row, now) : oneLine(row.activity) || label;
  const folder = directory && oneLine(folderName(directory));
  return [what, todoProgress(row), changed(row), folder, ago(row.modifiedAt, now)].filter(Boolean).join(' · ');
}

/** How many lines the agents of a session added and removed. */
function changed(row: SessionSummary): string {
  const sum = summaryTotals(row.changes);
  return sum ? `+${sum.additions.toLocaleString()} −${sum.deletions.toLocaleString()}` : '';
}

/** A request that has just been made has no age. */
function waiting(row: SessionSummary, now: number): string {
  const since = waitingSince(row);
  const age = since === undefined ? '' : ago(since, now);
  return age === '' || age === 'now' ? ACTIVITY_LABEL.waiting : `${ACTIVITY_LABEL.waiting} since ${age}`;
}
