// Short messages about problems and about what was done, shown until the user dismisses them.

import { signal } from '@preact/signals';

import { oneLine } from '../format';

export interface Notice {
  id: number;
  text: string;
  /** A report says what was done on request; all other notices are about problems. */
  kind: 'problem' | 'report';
}

/** A further notice removes the oldest one. */
const MAX_NOTICES = 4;
/** A notice may contain a reason that the host or an agent gave. */
const NOTICE_CHARACTERS = 500;

export class Notices {
  readonly list = signal<readonly Notice[]>([]);
  #nextId = 1;

  add(text: string, kind: Notice['kind'] = 'problem'): void {
    const kept = this.list.value.slice(-(MAX_NOTICES - 1));
    this.list.value = [...kept, { id: this.#nextId++, text: oneLine(text, NOTICE_CHARACTERS), kind }];
  }

  dismiss(id: number): void {
    this.list.value = this.list.value.filter((notice) => notice.id !== id);
  }
}
