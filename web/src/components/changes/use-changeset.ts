// Watches a changeset while a component shows it, and runs its operations.

import { useEffect, useRef } from 'preact/hooks';

import type { ChangesetOperation, ChangesetState, OperationTarget } from '../../ahp/changeset-types';
import type { Uri } from '../../ahp/types';
import type { Page } from '../../page';
import type { ChangesetView } from '../../page/changesets';

/** What the buttons of a changeset can do now. */
export interface ChangesetControls {
  channel: Uri;
  /** Why nothing can be done now. */
  blocked: string | undefined;
  /** The operation with this id, if the changeset has it for the scope. */
  operation(id: string, scope: 'changeset' | 'resource' | 'range'): ChangesetOperation | undefined;
  run(id: string, target?: OperationTarget): void;
  /** Marks a file as kept; absent if files cannot be marked. */
  review: ((file: string, reviewed: boolean) => void) | undefined;
}

/** The state of a changeset, subscribed while `watching`; afterwards the last known state. */
export function useChangeset(page: Page | undefined, channel: Uri | undefined, watching = true): ChangesetView | undefined {
  const last = useRef<{ channel: Uri; view: ChangesetView } | undefined>(undefined);
  useEffect(() => (channel !== undefined && watching ? page?.changesets.watch(channel) : undefined), [page, channel, watching]);
  if (channel === undefined) return undefined;
  const view = page?.changesets.views.value.get(channel);
  if (view) last.current = { channel, view };
  return last.current?.channel === channel ? last.current.view : undefined;
}

export function changesetControls(page: Page, channel: Uri, state: ChangesetState | undefined, reviewable: boolean): ChangesetControls {
  const operations = Array.isArray(state?.operations) ? state.operations : [];
  const online = page.status.value.kind === 'online';
  const running = page.changesets.busy.value.has(channel) || operations.some((each) => each.status === 'running');
  const blocked = !online ? 'Not connected to the host' : running ? 'Working…' : undefined;
  return {
    channel,
    blocked,
    operation: (id, scope) => operations.find((each) => each.id === id && Array.isArray(each.scopes) && each.scopes.includes(scope)),
    run: (id, target) => {
      if (blocked === undefined) void page.changesets.run({ channel, id, ...(target ? { target } : {}) });
    },
    review: reviewable ? (file, reviewed) => page.changesets.review(channel, [file], reviewed) : undefined,
  };
}

/** Whether an operation exists and can be started. */
export function isEnabled(operation: ChangesetOperation | undefined): boolean {
  return operation !== undefined && operation.status !== 'disabled';
}
