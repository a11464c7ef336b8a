// Unsent text, by session.

import { signal } from '@preact/signals';

import type { Uri } from '../ahp/types';

/** The key of the unsent text in the "new session" view. */
export const NEW = '';

export class Drafts {
  readonly bySession = signal<ReadonlyMap<Uri, string>>(new Map());

  get(session: Uri | undefined): string | undefined {
    return this.bySession.value.get(session ?? NEW);
  }

  /** Sets the text of a session, or of the "new session" view; empty text removes it. */
  set(session: Uri | undefined, text: string): void {
    const drafts = new Map(this.bySession.value);
    if (text === '') drafts.delete(session ?? NEW);
    else drafts.set(session ?? NEW, text);
    this.bySession.value = drafts;
  }
}

/** The text of the input box after a message has come back to it: before what was typed meanwhile. */
export function withReturned(typed: string | undefined, returned: string): string {
  return typed === undefined || typed.trim() === '' ? returned : `${returned}\n\n${typed}`;
}
