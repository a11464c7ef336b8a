// The files that a turn changed, below its answer. Until the turn's changeset is there, they come from the tool calls.

import { useComputed } from '@preact/signals';
import { useContext, useMemo, useRef } from 'preact/hooks';

import type { ChangesetFile } from '../../ahp/changeset-types';
import type { ActiveTurn, Turn } from '../../ahp/types';
import { turnChangeset } from '../../edits/catalogue';
import { editsOfTurn, fileUri, sortedFiles, totals } from '../../edits/file-edits';
import { MoreList } from '../MoreList';
import { PageContext } from '../page-context';
import { useVisible } from '../use-seen';
import { ChangesetActions } from './ChangesetActions';
import { ChangesetStatus } from './ChangesetStatus';
import { Counts, fileWords } from './Counts';
import { FileChange } from './FileChange';
import { OperationOutcome } from './OperationOutcome';
import { changesetControls, useChangeset } from './use-changeset';

/** Files that are listed at first, and with every further click. */
const SHOWN_FILES = 6;
/** A list that is slightly longer is shown completely. */
const LISTED_FILES = 8;

const LIST = { class: 'changes', 'data-changes': true, tabIndex: -1, role: 'group', 'aria-label': 'Files that this turn changed' } as const;

export function TurnChanges({ turn }: { turn: Turn | ActiveTurn }) {
  const ranTools = turn.responseParts.some((part) => part?.kind === 'toolCall');
  return ranTools ? <TurnFiles turn={turn} /> : null;
}

function TurnFiles({ turn }: { turn: Turn | ActiveTurn }) {
  const page = useContext(PageContext);
  const place = useRef<HTMLDivElement>(null);
  const visible = useVisible(place);
  // Only the catalogues matter: the chat itself changes with every word of an answer.
  const chatEntries = useComputed(() => page?.chat.value?.changesets).value;
  const sessionEntries = useComputed(() => page?.session.value?.changesets).value;
  const directories = useComputed(() => page?.session.value?.workingDirectories).value;
  const offered = turnChangeset(sessionEntries, chatEntries, turn.id);
  const view = useChangeset(page, offered?.uri, visible.value);
  const fromCalls = useMemo(() => editsOfTurn(turn.responseParts).map(asFile), [turn.responseParts]);
  const state = view?.state;
  const known = useMemo(() => sortedFiles(state), [state]);
  const isKnown = state !== undefined && state.status !== 'computing' && (state.status !== 'error' || known.length > 0);
  const files = isKnown ? known : fromCalls;
  const finished = offered && page?.changesets.finished.value.get(offered.uri);
  const controls = page && offered && state && changesetControls(page, offered.uri, state, offered.reviewable);
  const isEmpty = files.length === 0 && fromCalls.length === 0 && !finished;
  const sum = totals(files.map((file) => file.edit));
  return (
    // An empty list has a place, too: its changeset may get files while it is visible.
    <div ref={place} {...(isEmpty ? { class: 'no-changes' } : LIST)}>
      {!isEmpty && (
        <>
          <div class="changes-head">
            {files.length === 0 ? (
              <span>No changes of this turn are left.</span>
            ) : (
              <>
                <span>{fileWords(files.length)} changed</span> <Counts added={sum.additions} removed={sum.deletions} />
              </>
            )}
          </div>
          {files.length > 0 && (
            <ul class="files">
              <MoreList items={files} step={files.length <= LISTED_FILES ? LISTED_FILES : SHOWN_FILES} what="files">
                {(file) => <FileChange key={file.id} file={file} directories={directories} controls={controls} compact />}
              </MoreList>
            </ul>
          )}
          {(view?.failure !== undefined || state?.status === 'error') && <ChangesetStatus view={view} />}
          {finished && controls && <OperationOutcome finished={finished} controls={controls} directories={directories} />}
          {controls && files.length > 0 && <ChangesetActions controls={controls} offered={['undo', 'restore']} />}
        </>
      )}
    </div>
  );
}

function asFile(edit: ChangesetFile['edit']): ChangesetFile {
  return { id: fileUri(edit), edit };
}
