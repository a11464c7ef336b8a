// Short messages about problems, shown until the user dismisses them.

import { signal } from '@preact/signals';

import { oneLine } from '../format';

export interface Notice {
  id: number;
  text: string;
}

/** A further notice removes the oldest one. */
const MAX_NOTICES = 4;
/** A notice may contain a reason that the host or an agent gave. */
const NOTICE_CHARACTERS = 500;

export class Notices {
  readonly list = signal<readonly Notice[]>([]);
  #nextId = 1;

  add(text: string): void {
    const kept = this.list.value.slice(-(MAX_NOTICES - 1));
    this.list.value = [...kept, { id: this.#nextId++, text: oneLine(text, NOTICE_CHARACTERS) }];
  }

  dismiss(id: number): void {
    this.list.value = this.list.value.filter((notice) => notice.id !== id);
  }
}
