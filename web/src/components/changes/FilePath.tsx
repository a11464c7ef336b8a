// The path of a file: the name stands out, the folders are shortened first.

import type { Uri } from '../../ahp/types';
import { shownPath } from '../../edits/file-edits';
import { oneLine } from '../../format';

/** The characters of a path that are shown. */
export const PATH_CHARACTERS = 300;

export function FilePath({ uri, directories, gone = false }: { uri: Uri; directories: readonly Uri[] | undefined; gone?: boolean }) {
  const path = oneLine(shownPath(uri, directories), PATH_CHARACTERS);
  const name = path.lastIndexOf('/') + 1;
  return (
    <span class={gone ? 'file-path is-gone' : 'file-path'} title={path}>
      <span class="file-folder">{path.slice(0, name)}</span>
      <span class="file-name">{path.slice(name)}</span>
    </span>
  );
}
