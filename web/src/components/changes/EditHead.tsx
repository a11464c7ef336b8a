// The heading of an edit that is shown with its diff.

import type { FileEdit } from '../../ahp/changeset-types';
import type { Uri } from '../../ahp/types';
import { changeKind, fileUri, lineCounts } from '../../edits/file-edits';
import { Counts } from './Counts';
import { FilePath } from './FilePath';

export function EditHead({ edit, directories }: { edit: FileEdit; directories: readonly Uri[] | undefined }) {
  const kind = changeKind(edit);
  const counts = lineCounts(edit);
  return (
    <div class="edit-head">
      <FilePath uri={fileUri(edit)} directories={directories} gone={kind === 'deleted'} />
      {kind !== 'modified' && <span class={`mark is-${kind}`}>{kind}</span>}
      {counts && <Counts {...counts} />}
    </div>
  );
}
