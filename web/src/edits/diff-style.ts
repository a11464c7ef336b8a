// How diffs are shown. The choice is kept in the browser.

import { signal } from '@preact/signals';

export type DiffStyle = 'inline' | 'side-by-side';

const KEY = 'innkeeper.diff-style';

export const diffStyle = signal<DiffStyle>(stored());

export function chooseDiffStyle(style: DiffStyle): void {
  diffStyle.value = style;
  try {
    localStorage.setItem(KEY, style);
  } catch {
    // Without storage the choice holds until the page is closed.
  }
}

function stored(): DiffStyle {
  try {
    return localStorage.getItem(KEY) === 'side-by-side' ? 'side-by-side' : 'inline';
  } catch {
    return 'inline';
  }
}
