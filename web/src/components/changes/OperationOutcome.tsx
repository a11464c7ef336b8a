// The result of an operation: what the host says, and for each refused file the reason and what can be done.

import { useSignal } from '@preact/signals';
import { useContext, useLayoutEffect, useRef } from 'preact/hooks';

import type { Uri } from '../../ahp/types';
import { conflictLines } from '../../edits/conflict-lines';
import { shownPath } from '../../edits/file-edits';
import type { RefusedFile } from '../../edits/operation-report';
import { oneLine } from '../../format';
import type { FinishedOperation } from '../../page/changesets';
import { resourceText } from '../../resource-text';
import { visibleText } from '../../tool-input';
import { ConfirmDialog } from '../ConfirmDialog';
import { CloseIcon } from '../Icons';
import { MoreList } from '../MoreList';
import { PageContext } from '../page-context';
import type { ChangesetControls } from './use-changeset';

/** Refused files that are shown at first. */
const SHOWN_FILES = 5;
/** The characters of a conflict that are shown. */
const PREVIEW_CHARACTERS = 100_000;

interface OperationOutcomeProps {
  finished: FinishedOperation;
  controls: ChangesetControls;
  directories: readonly Uri[] | undefined;
}

export function OperationOutcome({ finished, controls, directories }: OperationOutcomeProps) {
  const page = useContext(PageContext);
  const { report } = finished;
  const redo = offersRedo(finished) ? controls.operation('redo', 'changeset') : undefined;
  const place = useRef<HTMLDivElement>(null);
  // The button that was pressed may be far away in a long list.
  useLayoutEffect(() => place.current?.scrollIntoView?.({ block: 'nearest' }), [finished]);
  const message = report.message || (report.refused.length === 0 ? 'Done.' : '');
  return (
    <div class={report.failed || report.refused.length > 0 ? 'result is-refused' : 'result'} role="status" ref={place}>
      <div class="result-head">
        <span class="result-text">
          {report.failed && <strong>This did not work. </strong>}
          {message}
          {report.refused.length > 0 && report.message === '' && (
            <strong>
              {' '}
              {report.refused.length === 1 ? '1 file was left as it is.' : `${report.refused.length} files were left as they are.`}
            </strong>
          )}
        </span>
        {redo && redo.status === 'idle' && (
          <button type="button" class="small" title={oneLine(redo.description)} onClick={() => controls.run('redo')}>
            {oneLine(redo.label) || 'Redo'}
          </button>
        )}
        <button
          type="button"
          class="icon-button"
          aria-label="Dismiss this result"
          onClick={() => page?.changesets.dismiss(controls.channel)}
        >
          <CloseIcon />
        </button>
      </div>
      {report.refused.length > 0 && (
        <ul>
          <MoreList items={report.refused} step={SHOWN_FILES} what="files">
            {(file) => <Refused key={file.uri} file={file} finished={finished} controls={controls} directories={directories} />}
          </MoreList>
        </ul>
      )}
    </div>
  );
}

/** Whether the redo takes this operation back. A redo after an operation that changed nothing takes an earlier one back. */
export function offersRedo({ operation, report }: FinishedOperation): boolean {
  return operation.id !== 'redo' && operation.id !== 'keep' && !report.failed && !report.unchanged;
}

function Refused({ file, finished, controls, directories }: OperationOutcomeProps & { file: RefusedFile }) {
  const page = useContext(PageContext);
  const asking = useSignal(false);
  const preview = useSignal<string | undefined>(undefined);
  const path = oneLine(shownPath(file.uri, directories));
  const toggle = async () => {
    if (preview.value !== undefined) {
      preview.value = undefined;
      return;
    }
    try {
      preview.value =
        page && file.preview ? visibleText(resourceText(await page.readResource(file.preview)).slice(0, PREVIEW_CHARACTERS)) : '';
    } catch (error) {
      preview.value = `The conflict cannot be shown: ${error instanceof Error ? error.message : String(error)}`;
    }
  };
  return (
    <li>
      <p>
        <span class="file-name">{path}</span>
        {afterName(path, file.reason)}
      </p>
      <div class="result-actions">
        {file.preview && (
          <button type="button" class="small" aria-expanded={preview.value !== undefined} onClick={() => void toggle()}>
            {preview.value === undefined ? 'Show conflict' : 'Hide conflict'}
          </button>
        )}
        {file.canForce && (
          <button
            type="button"
            class="small is-risky"
            aria-disabled={controls.blocked !== undefined}
            onClick={() => (asking.value = controls.blocked === undefined)}
          >
            {forceLabel(finished.operation.id)}
          </button>
        )}
      </div>
      {preview.value !== undefined && <Conflict text={preview.value} />}
      {asking.value && (
        <ConfirmDialog
          title={`${forceLabel(finished.operation.id)}?`}
          text={`All later changes of ${path} are overwritten, also those in other lines. “Redo” brings them back until the agent changes the file again.`}
          action={forceLabel(finished.operation.id)}
          onConfirm={() => void page?.changesets.force(finished, file)}
          onClose={() => (asking.value = false)}
        />
      )}
    </li>
  );
}

/** The reason as it is shown after the path: many reasons begin with the name of the file. */
function afterName(path: string, reason: string): string {
  const name = path.slice(path.lastIndexOf('/') + 1);
  return reason.startsWith(`${name} `) ? reason.slice(name.length) : `: ${reason}`;
}

function forceLabel(operation: string): string {
  const labels = new Map([
    ['redo', 'Redo anyway'],
    ['restore', 'Restore anyway'],
  ]);
  return labels.get(operation) ?? 'Undo anyway';
}

/** A file with conflict marks; only the lines around them. */
function Conflict({ text }: { text: string }) {
  const place = useRef<HTMLPreElement>(null);
  // A short list ends at the edge of the screen.
  useLayoutEffect(() => place.current?.scrollIntoView?.({ block: 'nearest' }), []);
  return (
    <pre class="conflict" tabIndex={0} ref={place}>
      {conflictLines(text).map((line, index) => (
        <span key={index} class={line.kind === 'plain' ? undefined : `is-${line.kind}`}>
          {`${line.text}\n`}
        </span>
      ))}
    </pre>
  );
}
