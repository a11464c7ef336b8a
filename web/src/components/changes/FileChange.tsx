// A changed file: its path, what is special about the change, its counts, and on request its diff.

import { useSignal } from '@preact/signals';
import { useEffect, useId, useRef } from 'preact/hooks';

import type { ChangesetFile, ChangesetOperation } from '../../ahp/changeset-types';
import type { Uri } from '../../ahp/types';
import { changeKind, fileUri, isBinary, lineCounts, shownPath } from '../../edits/file-edits';
import { oneLine, plainText } from '../../format';
import { type EditDetails, editDetails } from '../../host-metadata';
import { ConfirmDialog } from '../ConfirmDialog';
import { DiffView } from '../diff/DiffView';
import { useFocusReturn } from '../use-focus-return';
import { Counts } from './Counts';
import { FilePath, PATH_CHARACTERS } from './FilePath';
import { type ChangesetControls, isEnabled } from './use-changeset';

/** How long a mark is shown that the host has not confirmed. */
const ANSWER_MS = 3_000;

interface FileChangeProps {
  file: ChangesetFile;
  directories: readonly Uri[] | undefined;
  /** Absent if nothing can be done with the file. */
  controls?: ChangesetControls | undefined;
  /** Whether the buttons are shown with the diff only. */
  compact?: boolean;
}

export function FileChange({ file, directories, controls, compact = false }: FileChangeProps) {
  const { edit } = file;
  const open = useSignal(false);
  const row = useRef<HTMLLIElement>(null);
  const bodyId = useId();
  useFocusReturn(row, (element) => element.closest<HTMLElement>('[data-changes]'));
  const details = editDetails(file);
  const counts = lineCounts(edit);
  const kind = changeKind(edit);
  // A content that is not known has no counts either; the host stores a notice in its place.
  const unknown = details.notUndoable !== '' && counts === undefined;
  const binary = file._meta !== undefined && !unknown && isBinary(edit);
  const undoable = details.notUndoable === '' ? controls : undefined;
  const actions = controls && <FileActions file={file} controls={controls} details={details} directories={directories} />;
  return (
    <li class="file" ref={row} data-file={fileUri(edit)}>
      <div class="file-head">
        <button
          type="button"
          class="file-toggle"
          aria-expanded={open.value}
          aria-controls={bodyId}
          onClick={() => (open.value = !open.value)}
        >
          <FilePath uri={fileUri(edit)} directories={directories} gone={kind === 'deleted'} />
          {kind !== 'modified' && <span class={`mark is-${kind}`}>{kind}</span>}
          {binary && <span class="mark">binary</span>}
          {details.byShell && <span class="mark">shell</span>}
          {details.byOthers && <span class="mark">not by the agent</span>}
          {details.overlaps && <span class="mark is-warning">overlaps</span>}
          {details.mixed && <span class="mark is-warning">mixed</span>}
          {details.notUndoable !== '' && <span class="mark is-warning">cannot be undone</span>}
          {counts && <Counts {...counts} />}
        </button>
        {!compact && actions}
      </div>
      {open.value && (
        <div class="file-body" id={bodyId}>
          {compact && actions}
          <Notes file={file} details={details} unknown={unknown} directories={directories} />
          {!unknown && (
            <DiffView
              edit={edit}
              blocked={undoable?.blocked}
              onUndo={
                isEnabled(undoable?.operation('undo', 'range'))
                  ? (range) => undoable?.run('undo', { kind: 'range', resource: file.id, range })
                  : undefined
              }
            />
          )}
        </div>
      )}
    </li>
  );
}

interface FileActionsProps {
  file: ChangesetFile;
  controls: ChangesetControls;
  details: EditDetails;
  directories: readonly Uri[] | undefined;
}

function FileActions({ file, controls, details, directories }: FileActionsProps) {
  const { blocked, review } = controls;
  const undo = details.notUndoable === '' ? controls.operation('undo', 'resource') : undefined;
  const path = oneLine(shownPath(fileUri(file.edit), directories), PATH_CHARACTERS);
  if (!review && !undo) return null;
  return (
    <div class="file-actions">
      {review && <Keep file={file} path={path} onChange={(reviewed) => review(file.id, reviewed)} />}
      {undo && (
        <UndoFile
          operation={undo}
          path={path}
          blocked={blocked}
          onUndo={() => controls.run('undo', { kind: 'resource', resource: file.id })}
        />
      )}
    </div>
  );
}

interface UndoFileProps {
  operation: ChangesetOperation;
  path: string;
  blocked: string | undefined;
  onUndo: () => void;
}

function UndoFile({ operation, path, blocked, onUndo }: UndoFileProps) {
  const asking = useSignal(false);
  const label = oneLine(operation.label) || 'Undo';
  const question = oneLine(plainText(operation.confirmation), 600);
  const isPossible = blocked === undefined && isEnabled(operation);
  const press = () => {
    if (!isPossible) return;
    if (question === '') onUndo();
    else asking.value = true;
  };
  return (
    <>
      <button
        type="button"
        class="small"
        aria-disabled={!isPossible}
        title={blocked ?? (oneLine(operation.description) || undefined)}
        onClick={press}
      >
        {label}
        <span class="visually-hidden"> {path}</span>
      </button>
      {asking.value && (
        <ConfirmDialog
          title={`${label} the changes of ${path}?`}
          text={question}
          action={label}
          onConfirm={onUndo}
          onClose={() => (asking.value = false)}
        />
      )}
    </>
  );
}

/** A change is shown at once; without an answer of the host the box returns to what the host has. */
function Keep({ file, path, onChange }: { file: ChangesetFile; path: string; onChange: (reviewed: boolean) => void }) {
  const wanted = useSignal<boolean | undefined>(undefined);
  useEffect(() => {
    wanted.value = undefined;
  }, [file]);
  useEffect(() => {
    if (wanted.value === undefined) return;
    const timer = setTimeout(() => (wanted.value = undefined), ANSWER_MS);
    return () => clearTimeout(timer);
  }, [wanted.value]);
  return (
    <label class="file-keep">
      <input
        type="checkbox"
        checked={wanted.value ?? file.reviewed === true}
        onChange={(event) => {
          wanted.value = event.currentTarget.checked;
          onChange(event.currentTarget.checked);
        }}
      />
      <span>
        Keep<span class="visually-hidden"> {path}</span>
      </span>
    </label>
  );
}

interface NotesProps {
  file: ChangesetFile;
  details: EditDetails;
  /** Whether a content is not known. */
  unknown: boolean;
  directories: readonly Uri[] | undefined;
}

function Notes({ file, details, unknown, directories }: NotesProps) {
  const { edit } = file;
  const notes = [
    changeKind(edit) === 'renamed' && `Renamed from ${oneLine(shownPath(edit.before?.uri ?? '', directories), PATH_CHARACTERS)}.`,
    details.byShell && 'A command of the agent changed this file.',
    details.byOthers && 'You or another program changed this file, not the agent.',
    details.overlaps && 'Another chat, a command in the background, or you may have made a part of this change.',
    details.mixed && 'The file was also changed outside of the agent between its changes.',
    details.notUndoable !== '' && `Cannot be undone: ${details.notUndoable}.`.replace(/\.\.$/, '.'),
    unknown && 'For the same reason there is no diff.',
  ].filter((note) => note !== false);
  if (notes.length === 0) return null;
  return <p class="file-notes">{notes.join(' ')}</p>;
}
