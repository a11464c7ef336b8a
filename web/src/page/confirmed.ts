// Dispatches whose outcome is awaited: the host accepts or refuses each of them with its echo.

import type { Action, Uri } from '../ahp/types';

export type Verdict =
  | { kind: 'accepted' }
  | { kind: 'refused'; reason: string }
  /** The connection broke first, or the host did not answer: the host may have the action or not. */
  | { kind: 'lost' };

/** The host ignores a dispatch to an unknown session. */
const ECHO_TIMEOUT_MS = 30_000;

export class ConfirmedDispatches {
  readonly #dispatch: (channel: Uri, action: Action) => number | undefined;
  readonly #waiting = new Map<number, (verdict: Verdict) => void>();

  constructor(dispatch: (channel: Uri, action: Action) => number | undefined) {
    this.#dispatch = dispatch;
  }

  dispatch(channel: Uri, action: Action): Promise<Verdict> {
    const clientSeq = this.#dispatch(channel, action);
    if (clientSeq === undefined) return Promise.resolve({ kind: 'lost' });
    return new Promise((resolve) => {
      this.#waiting.set(clientSeq, resolve);
      setTimeout(() => this.#settle(clientSeq, { kind: 'lost' }), ECHO_TIMEOUT_MS);
    });
  }

  /** Handles an echo; returns false if its dispatch is not awaited here. */
  echoed(clientSeq: number, rejection: string | undefined): boolean {
    return this.#settle(clientSeq, rejection === undefined ? { kind: 'accepted' } : { kind: 'refused', reason: rejection });
  }

  /** After a reconnect, no further echoes of earlier dispatches arrive. */
  clear(): void {
    for (const clientSeq of [...this.#waiting.keys()]) this.#settle(clientSeq, { kind: 'lost' });
  }

  #settle(clientSeq: number, verdict: Verdict): boolean {
    const resolve = this.#waiting.get(clientSeq);
    this.#waiting.delete(clientSeq);
    resolve?.(verdict);
    return resolve !== undefined;
  }
}
