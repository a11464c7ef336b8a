// Short messages about problems, shown until the user dismisses them.

import { signal } from '@preact/signals';

export interface Notice {
  id: number;
  text: string;
}

/** A further notice removes the oldest one. */
const MAX_NOTICES = 4;

export class Notices {
  readonly list = signal<readonly Notice[]>([]);
  #nextId = 1;

  add(text: string): void {
    const kept = this.list.value.slice(-(MAX_NOTICES - 1));
    this.list.value = [...kept, { id: this.#nextId++, text }];
  }

  dismiss(id: number): void {
    this.list.value = this.list.value.filter((notice) => notice.id !== id);
  }
}
