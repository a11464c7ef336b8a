// All changes of a session, over the conversation: what the agents changed, and what is not committed.

import { useSignal } from '@preact/signals';
import { useLayoutEffect, useMemo, useRef } from 'preact/hooks';

import type { ChangesetState } from '../../ahp/changeset-types';
import { type OfferedChangeset, sessionChangesets } from '../../edits/catalogue';
import { sortedFiles, summaryTotals, totals } from '../../edits/file-edits';
import { oneLine } from '../../format';
import type { Page } from '../../page';
import { CloseIcon, DiffIcon } from '../Icons';
import { MoreList } from '../MoreList';
import { PageContext } from '../page-context';
import { ChangesetActions } from './ChangesetActions';
import { ChangesetStatus } from './ChangesetStatus';
import { Totals } from './Counts';
import { FileChange } from './FileChange';
import { OperationOutcome, offersRedo } from './OperationOutcome';
import { changesetControls, useChangeset } from './use-changeset';

/** Files that are listed at first, and with every further click. */
const SHOWN_FILES = 100;

/** Opens and closes the view; says how much was changed. */
export function ChangesButton({ page }: { page: Page }) {
  const row = page.selected.value === undefined ? undefined : page.sessions.value.get(page.selected.value);
  const sum = summaryTotals(row?.changes) ?? summaryTotals(page.chat.value?.changes);
  const offered = sessionChangesets(page.session.value?.changesets, page.chat.value?.changesets);
  if (offered.length === 0) return null;
  return (
    <button
      type="button"
      class="changes-button"
      aria-expanded={page.changesShown.value}
      onClick={() => (page.changesShown.value = !page.changesShown.value)}
    >
      <DiffIcon />
      <span class={sum ? 'visually-hidden' : undefined}>Changes</span>
      {sum && (
        <span class="changes-sum">
          <Totals {...sum} />
        </span>
      )}
    </button>
  );
}

export function ChangesView({ page }: { page: Page }) {
  const view = useRef<HTMLElement>(null);
  const chosen = useSignal(0);
  const offered = sessionChangesets(page.session.value?.changesets, page.chat.value?.changesets);
  const current = offered[chosen.value] ?? offered[0];
  useLayoutEffect(() => {
    const before = document.activeElement;
    view.current?.focus({ preventScroll: true });
    return () => {
      const isInside = document.activeElement === document.body || view.current?.contains(document.activeElement);
      if (isInside && before instanceof HTMLElement) before.focus({ preventScroll: true });
    };
  }, []);
  return (
    <section
      class="changes-view"
      ref={view}
      tabIndex={-1}
      aria-label="Changes"
      onKeyDown={(event) => {
        // A dialog closes itself first.
        if (event.key !== 'Escape' || (event.target instanceof Element && event.target.closest('dialog'))) return;
        page.changesShown.value = false;
      }}
    >
      <PageContext.Provider value={page}>
        <div class="changes-view-head">
          <h2>Changes</h2>
          {offered.length > 1 && (
            <div class="segments" role="group" aria-label="Which changes">
              {offered.map((each, index) => (
                <button
                  key={each.uri}
                  type="button"
                  aria-pressed={each === current}
                  title={each.description}
                  onClick={() => (chosen.value = index)}
                >
                  {shortLabel(each.label)}
                </button>
              ))}
            </div>
          )}
          <button type="button" class="icon-button" aria-label="Close the changes" onClick={() => (page.changesShown.value = false)}>
            <CloseIcon />
          </button>
        </div>
        {current ? (
          <Files key={current.uri} page={page} changeset={current} />
        ) : (
          <p class="changes-status">The host no longer offers the changes of this session.</p>
        )}
      </PageContext.Provider>
    </section>
  );
}

/** The label of a changeset without the word that is in the heading. */
function shortLabel(label: unknown): string {
  return oneLine(label).replace(/\s+changes$/i, '');
}

/** What the host says about files that are not listed or cannot be undone; it is appended to the description of undo. */
function undoNotes(state: ChangesetState | undefined): string[] {
  const undo = state?.operations?.find((operation) => operation.id === 'undo');
  const notes = oneLine(undo?.description).split('; ').slice(1);
  return notes.map((note) => `${note.charAt(0).toUpperCase()}${note.slice(1)}.`);
}

function emptyWords({ kind }: OfferedChangeset): string {
  return kind === 'uncommitted'
    ? 'There are no uncommitted changes. Files outside of git repositories are not listed here.'
    : 'There are no changes.';
}

function Files({ page, changeset }: { page: Page; changeset: OfferedChangeset }) {
  const view = useChangeset(page, changeset.uri);
  const state = view?.state;
  const files = useMemo(() => sortedFiles(state), [state]);
  const controls = changesetControls(page, changeset.uri, state, changeset.reviewable);
  const finished = page.changesets.finished.value.get(changeset.uri);
  const directories = page.session.value?.workingDirectories;
  // The result of an operation has the button itself.
  const redo = finished && offersRedo(finished) ? [] : ['redo'];
  return (
    <div class="changes-view-body" data-changes tabIndex={-1}>
      <div class="changes-bar">
        {files.length > 0 && (
          <span class="changes-sum">
            <Totals {...totals(files.map((file) => file.edit))} />
          </span>
        )}
        <ChangesetActions controls={controls} offered={[...redo, ...(files.length > 0 ? ['keep', 'undo'] : [])]} />
      </div>
      <ChangesetStatus view={view} failed={finished?.report.failed} />
      {undoNotes(state).map((note) => (
        <p key={note} class="changes-status">
          {note}
        </p>
      ))}
      {finished && <OperationOutcome finished={finished} controls={controls} directories={directories} />}
      {files.length === 0 && state?.status === 'ready' && <p class="changes-status">{emptyWords(changeset)}</p>}
      {files.length > 0 && (
        <ul class="files is-framed">
          <MoreList items={files} step={SHOWN_FILES} what="files">
            {(file) => <FileChange key={file.id} file={file} directories={directories} controls={controls} />}
          </MoreList>
        </ul>
      )}
    </div>
  );
}
