// The changesets that are shown: subscribed while a component shows them, and the operations on them.

import { signal } from '@preact/signals';

import type { ChangesetState, OperationResult, OperationTarget } from '../ahp/changeset-types';
import { RpcError } from '../ahp/rpc';
import type { Action, Uri } from '../ahp/types';
import { failureOf, type OperationReport, type RefusedFile, reportOf } from '../edits/operation-report';

export interface ChangesetView {
  state?: ChangesetState;
  /** Why it cannot be shown. */
  failure?: string;
}

export interface Operation {
  channel: Uri;
  id: string;
  /** Absent for the whole changeset. */
  target?: OperationTarget;
  /** Overwrites later changes of the same lines. */
  force?: boolean;
}

/** The last operation on a changeset that was started here, and its result. */
export interface FinishedOperation {
  operation: Operation;
  report: OperationReport;
}

export interface ChangesetsOptions {
  online(): boolean;
  state(channel: Uri): ChangesetState | undefined;
  subscribe(channel: Uri): Promise<void>;
  unsubscribe(channel: Uri): void;
  request(method: string, params: object): Promise<unknown>;
  dispatch(channel: Uri, action: Action): number | undefined;
  notice(text: string): void;
}

export class Changesets {
  /** The changesets that are watched. */
  readonly views = signal<ReadonlyMap<Uri, ChangesetView>>(new Map());
  /** The changesets with an operation that was started here and has not ended. */
  readonly busy = signal<ReadonlySet<Uri>>(new Set());
  readonly finished = signal<ReadonlyMap<Uri, FinishedOperation>>(new Map());
  readonly #options: ChangesetsOptions;
  readonly #watchers = new Map<Uri, number>();
  readonly #subscribing = new Set<Uri>();

  constructor(options: ChangesetsOptions) {
    this.#options = options;
  }

  /** Subscribes to a changeset until the returned function is called. */
  watch(channel: Uri): () => void {
    this.#watchers.set(channel, (this.#watchers.get(channel) ?? 0) + 1);
    if (this.#watchers.get(channel) === 1) void this.#subscribe(channel);
    let watching = true;
    return () => {
      if (!watching) return;
      watching = false;
      this.#unwatch(channel);
    };
  }

  isWatched(channel: Uri): boolean {
    return this.#watchers.has(channel);
  }

  /** Takes the states from the mirror. */
  publish(): void {
    const changed = [...this.#watchers.keys()].filter((channel) => {
      const state = this.#options.state(channel);
      return state !== undefined && state !== this.views.value.get(channel)?.state;
    });
    if (changed.length === 0) return;
    const views = new Map(this.views.value);
    for (const channel of changed) views.set(channel, { state: this.#options.state(channel)! });
    this.views.value = views;
  }

  /** After a connection: subscribes to the watched changesets that the host did not resume. */
  resubscribe(): void {
    for (const channel of this.#watchers.keys()) if (!this.#options.state(channel)) void this.#subscribe(channel);
  }

  /** Marks files as reviewed, or takes the mark back. */
  review(channel: Uri, files: string[], reviewed: boolean): void {
    const sent = this.#options.dispatch(channel, { type: 'changeset/filesReviewChanged', files, reviewed });
    if (sent === undefined) this.#options.notice('Not connected: files cannot be marked from here right now.');
  }

  async run(operation: Operation): Promise<void> {
    const { channel, id, target, force } = operation;
    if (this.busy.value.has(channel)) return;
    this.busy.value = new Set([...this.busy.value, channel]);
    this.#forgetOldResults(channel);
    const params = {
      channel,
      operationId: id,
      ...(target ? { target } : {}),
      ...(force ? { _meta: { 'innkeeper.force': true } } : {}),
    };
    let report: OperationReport;
    try {
      report = reportOf((await this.#options.request('invokeChangesetOperation', params)) as OperationResult);
    } catch (error) {
      report = failureOf(error);
    }
    this.finished.value = new Map(this.finished.value).set(channel, { operation, report });
    this.busy.value = new Set([...this.busy.value].filter((each) => each !== channel));
  }

  /** Repeats an operation for a file that it refused, so that it overwrites later changes. */
  force({ operation }: FinishedOperation, file: RefusedFile): Promise<void> {
    const { channel, id, target } = operation;
    // An operation on the whole changeset is repeated for the one file, if the operation can be limited to a file.
    const scopes = this.views.value.get(channel)?.state?.operations?.find((each) => each.id === id)?.scopes;
    const resource: OperationTarget = { kind: 'resource', resource: file.uri };
    const next = target ?? (Array.isArray(scopes) && scopes.includes('resource') ? resource : undefined);
    return this.run({ channel, id, ...(next ? { target: next } : {}), force: true });
  }

  /** Removes the result of the last operation. */
  dismiss(channel: Uri): void {
    if (!this.finished.value.has(channel)) return;
    const finished = new Map(this.finished.value);
    finished.delete(channel);
    this.finished.value = finished;
  }

  /** Removes the results when another session is shown. */
  forgetResults(): void {
    if (this.finished.value.size > 0) this.finished.value = new Map();
  }

  /** A new operation makes the earlier results obsolete, except for refusals of other changesets. */
  #forgetOldResults(channel: Uri): void {
    const kept = [...this.finished.value].filter(([of, { report }]) => of !== channel && (report.failed || report.refused.length > 0));
    if (kept.length < this.finished.value.size) this.finished.value = new Map(kept);
  }

  #unwatch(channel: Uri): void {
    const left = (this.#watchers.get(channel) ?? 1) - 1;
    if (left > 0) {
      this.#watchers.set(channel, left);
      return;
    }
    this.#watchers.delete(channel);
    const views = new Map(this.views.value);
    views.delete(channel);
    this.views.value = views;
    // A subscription that is being made is ended when the host has confirmed it.
    if (!this.#subscribing.has(channel)) this.#options.unsubscribe(channel);
  }

  async #subscribe(channel: Uri): Promise<void> {
    // Without a connection, the next one subscribes.
    if (this.#subscribing.has(channel) || !this.#options.online()) return;
    this.#subscribing.add(channel);
    let failure: string | undefined;
    try {
      await this.#options.subscribe(channel);
    } catch (error) {
      if (error instanceof RpcError) failure = error.message;
    }
    this.#subscribing.delete(channel);
    if (!this.#watchers.has(channel)) this.#options.unsubscribe(channel);
    else if (failure !== undefined) this.views.value = new Map(this.views.value).set(channel, { failure });
    else this.publish();
  }
}
