// A list of any length, of which the first items are shown, and further ones on request.

import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';

interface MoreListProps<T> {
  items: readonly T[];
  /** Items that are shown at first, and with every further click. */
  step: number;
  what: string;
  children(item: T, index: number): ComponentChildren;
}

export function MoreList<T>({ items, step, what, children: show }: MoreListProps<T>) {
  const shown = useSignal(step);
  const hidden = items.length - shown.value;
  return (
    <>
      {items.slice(0, shown.value).map(show)}
      {hidden > 0 && (
        <button type="button" class="more" onClick={() => (shown.value += step)}>
          Show more {what} ({hidden.toLocaleString()} are hidden)
        </button>
      )}
    </>
  );
}
