// The fields of one open input request. The user's changes become shared drafts after a pause; another client's draft
// replaces a field, unless the user is changing that field.

import { signal } from '@preact/signals';

import type { Answer, InputRequest, Question } from './ahp/types';
import { draftOf, EMPTY, type Entry, entryOf, sharedAnswer } from './question-entry';

/** The pause after the last change of a field before its draft is sent. */
const DRAFT_DELAY_MS = 300;

export interface AnswerSheetOptions {
  send(questionId: string, answer: Answer): void;
  /** Whether a draft of this question was sent and not confirmed yet. */
  isUnconfirmed(questionId: string): boolean;
}

export class AnswerSheet {
  readonly #entries = signal<ReadonlyMap<string, Entry>>(new Map());
  readonly #options: AnswerSheetOptions;
  /** The shared answers as they were last seen, as JSON. */
  readonly #seen = new Map<string, string | undefined>();
  readonly #unsent = new Map<string, { timer: ReturnType<typeof setTimeout>; send: () => void }>();
  #typingIn: string | undefined;

  constructor(request: InputRequest, options: AnswerSheetOptions) {
    this.#options = options;
    this.update(request);
  }

  entry(question: Question): Entry {
    return this.#entries.value.get(question.id) ?? EMPTY;
  }

  /** Takes over the answers that changed, except those of fields that the user is changing. */
  update(request: InputRequest): void {
    const entries = new Map(this.#entries.peek());
    for (const question of request.questions ?? []) {
      const answer = sharedAnswer(request, question);
      const shared = JSON.stringify(answer);
      const isNew = !this.#seen.has(question.id);
      const changed = isNew || this.#seen.get(question.id) !== shared;
      this.#seen.set(question.id, shared);
      if (changed && !this.#isChanging(question.id)) entries.set(question.id, entryOf(question, answer));
    }
    this.#entries.value = entries;
  }

  /** The user changed a field. */
  change(question: Question, entry: Entry): void {
    this.#entries.value = new Map(this.#entries.peek()).set(question.id, entry);
    clearTimeout(this.#unsent.get(question.id)?.timer);
    const send = () => {
      clearTimeout(this.#unsent.get(question.id)?.timer);
      this.#unsent.delete(question.id);
      const draft = draftOf(question, entry);
      if (draft) this.#options.send(question.id, draft);
    };
    this.#unsent.set(question.id, { timer: setTimeout(send, DRAFT_DELAY_MS), send });
  }

  /** The user typed into a field, which is the user's until it loses the focus. */
  type(question: Question, entry: Entry): void {
    this.#typingIn = question.id;
    this.change(question, entry);
  }

  /** The field lost the focus. */
  leave(question: Question): void {
    if (this.#typingIn === question.id) this.#typingIn = undefined;
    this.#unsent.get(question.id)?.send();
  }

  /** Drops the drafts that were not sent yet. */
  dropUnsent(): void {
    for (const { timer } of this.#unsent.values()) clearTimeout(timer);
    this.#unsent.clear();
  }

  #isChanging(questionId: string): boolean {
    return this.#typingIn === questionId || this.#unsent.has(questionId) || this.#options.isUnconfirmed(questionId);
  }
}
