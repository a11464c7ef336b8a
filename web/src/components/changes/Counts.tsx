// Numbers of added and removed lines, and of files.

import type { ChangesSummary } from '../../ahp/changeset-types';
import type { LineCounts } from '../../edits/file-edits';

export function Counts({ added, removed }: LineCounts) {
  if (added === 0 && removed === 0) return null;
  return (
    <span class="counts">
      <span class="count-added">
        +{added.toLocaleString()}
        <span class="visually-hidden"> lines added,</span>
      </span>{' '}
      <span class="count-removed">
        −{removed.toLocaleString()}
        <span class="visually-hidden"> lines removed</span>
      </span>
    </span>
  );
}

export function fileWords(files: number): string {
  return files === 1 ? '1 file' : `${files.toLocaleString()} files`;
}

export function Totals({ files, additions, deletions }: Required<ChangesSummary>) {
  return (
    <>
      <Counts added={additions} removed={deletions} /> <span aria-hidden="true">·</span> {fileWords(files)}
    </>
  );
}
