// Answers to requests that were dispatched here and that the host has not confirmed yet.

import { signal } from '@preact/signals';

import type { Uri } from '../ahp/types';

export interface SentAnswer {
  clientSeq: number;
  chat: Uri;
  /** The id of the input request, or of the tool call that waits for permission. */
  requestId: string;
  /** The question of a draft; absent if the dispatch completes the request. */
  questionId?: string;
}

export class SentAnswers {
  readonly list = signal<readonly SentAnswer[]>([]);

  add(answer: SentAnswer): void {
    this.list.value = [...this.list.value, answer];
  }

  sentAs(clientSeq: number): SentAnswer | undefined {
    return this.list.value.find((each) => each.clientSeq === clientSeq);
  }

  /** Returns whether the answer was unconfirmed until now. */
  remove(answer: SentAnswer): boolean {
    const others = this.list.value.filter((each) => each !== answer);
    const found = others.length < this.list.value.length;
    if (found) this.list.value = others;
    return found;
  }

  clear(): void {
    if (this.list.value.length > 0) this.list.value = [];
  }
}
