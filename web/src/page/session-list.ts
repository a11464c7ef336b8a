// The rows of the session list: listed once per connection, then kept up to date by notifications.

import { computed, type ReadonlySignal, signal } from '@preact/signals';

import type { Connection } from '../ahp/connection';
import { ROOT, type SessionSummary, type Uri } from '../ahp/types';

/** Pages of the session list that are requested at most, so that a faulty host cannot cause endless requests. */
const MAX_LIST_PAGES = 50;

export class SessionList {
  readonly byUri = signal<ReadonlyMap<Uri, SessionSummary>>(new Map());
  /** The rows, newest first. */
  readonly rows: ReadonlySignal<SessionSummary[]> = computed(() =>
    [...this.byUri.value.values()].sort((a, b) => String(b.modifiedAt).localeCompare(String(a.modifiedAt))),
  );

  has(session: Uri): boolean {
    return this.byUri.value.has(session);
  }

  /** Requests every page of the list. */
  async load(connection: Connection): Promise<void> {
    const found = new Map<Uri, SessionSummary>();
    let cursor: string | undefined;
    for (let page = 0; page < MAX_LIST_PAGES; page++) {
      const params = { channel: ROOT, ...(cursor === undefined ? {} : { cursor }) };
      cursor = undefined;
      await connection.request<{ items: SessionSummary[]; nextCursor?: string }>('listSessions', params, (result) => {
        for (const summary of result.items) found.set(summary.resource, summary);
        cursor = result.nextCursor;
        if (cursor === undefined) this.byUri.value = found;
      });
      if (cursor === undefined) return;
    }
    this.byUri.value = found;
  }

  add(summary: SessionSummary): void {
    this.byUri.value = new Map(this.byUri.value).set(summary.resource, summary);
  }

  change(session: Uri, changes: Partial<SessionSummary>): void {
    const known = this.byUri.value.get(session);
    if (known) this.byUri.value = new Map(this.byUri.value).set(session, { ...known, ...changes });
  }

  remove(session: Uri): void {
    const sessions = new Map(this.byUri.value);
    if (sessions.delete(session)) this.byUri.value = sessions;
  }
}
