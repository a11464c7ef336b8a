// The diff of one file: read from the host when it appears, shown in one column or in two.

import { useSignal } from '@preact/signals';
import { useContext, useEffect, useRef } from 'preact/hooks';

import type { FileEdit, TextRange } from '../../ahp/changeset-types';
import type { DiffDocument } from '../../edits/diff-document';
import { chooseDiffStyle, type DiffStyle, diffStyle } from '../../edits/diff-style';
import { diffUri } from '../../edits/file-edits';
import { oneLine } from '../../format';
import { PageContext } from '../page-context';
import { useWiderThan } from '../use-seen';
import { DiffHunks } from './DiffHunks';

/** Two columns need this much space. */
const TWO_COLUMNS_PX = 720;
/** The lines that are shown at first. */
const SHOWN_LINES = 300;

interface DiffViewProps {
  edit: FileEdit;
  /** The lines that are shown at first, and with every further click. */
  lines?: number;
  /** Undoes the changes of some lines; absent if that is not possible. */
  onUndo?: ((range: TextRange) => void) | undefined;
  /** Why nothing can be undone now. */
  blocked?: string | undefined;
  /** The diff cannot be shown. */
  onUnavailable?: () => void;
}

interface Loaded {
  uri: string;
  document?: DiffDocument;
  failure?: string;
}

export function DiffView({ edit, lines = SHOWN_LINES, onUndo, blocked, onUnavailable }: DiffViewProps) {
  const place = useRef<HTMLDivElement>(null);
  const wide = useWiderThan(place, TWO_COLUMNS_PX);
  const uri = diffUri(edit);
  const { loaded, retry } = useDiff(uri, onUnavailable);
  const document = loaded?.document;
  const hasLines = document !== undefined && !document.binary && document.hunks.length > 0;
  const style: DiffStyle = wide.value ? diffStyle.value : 'inline';
  return (
    <div class="diff" ref={place} aria-busy={uri !== undefined && loaded?.uri !== uri}>
      {hasLines && wide.value && <StyleChoice style={style} />}
      {uri === undefined ? (
        <p class="diff-remark">The contents before and after the change are not stored, so there is no diff.</p>
      ) : loaded?.failure !== undefined ? (
        <p class="diff-remark">
          The diff cannot be shown: {loaded.failure}{' '}
          <button type="button" class="text-button" onClick={retry}>
            Try again
          </button>
        </p>
      ) : document === undefined ? (
        <p class="diff-remark">Loading the diff…</p>
      ) : (
        <Content document={document} edit={edit} style={style} lines={lines} onUndo={onUndo} blocked={blocked} />
      )}
    </div>
  );
}

interface ContentProps {
  document: DiffDocument;
  edit: FileEdit;
  style: DiffStyle;
  lines: number;
  onUndo: ((range: TextRange) => void) | undefined;
  blocked: string | undefined;
}

function Content({ document, edit, style, lines, onUndo, blocked }: ContentProps) {
  if (document.binary) return <p class="diff-remark">This is a binary file. Its content is not shown.</p>;
  if (document.hunks.length === 0) {
    const words = document.truncated ? 'The file is too large for a diff.' : 'The content is the same before and after the change.';
    return <p class="diff-remark">{words}</p>;
  }
  return (
    <>
      <DiffHunks document={document} edit={edit} style={style} lines={lines} onUndo={onUndo} blocked={blocked} />
      {document.truncated && (
        <p class="diff-remark">
          The diff is too large to be shown completely: +{document.added.toLocaleString()} −{document.removed.toLocaleString()} lines.
        </p>
      )}
    </>
  );
}

function StyleChoice({ style }: { style: DiffStyle }) {
  const choices: [DiffStyle, string][] = [
    ['inline', 'Inline'],
    ['side-by-side', 'Side by side'],
  ];
  return (
    <div class="segments diff-style" role="group" aria-label="Layout of the diff">
      {choices.map(([each, label]) => (
        <button key={each} type="button" aria-pressed={each === style} onClick={() => chooseDiffStyle(each)}>
          {label}
        </button>
      ))}
    </div>
  );
}

/** Reads the diff. A diff that is replaced by another one stays until that one is there. */
function useDiff(uri: string | undefined, onUnavailable: (() => void) | undefined) {
  const page = useContext(PageContext);
  const loaded = useSignal<Loaded | undefined>(undefined);
  const attempt = useSignal(0);
  useEffect(() => {
    if (uri === undefined || !page) {
      onUnavailable?.();
      return;
    }
    let current = true;
    page.diffs.read(uri).then(
      (document) => {
        if (current) loaded.value = { uri, document };
      },
      (error: unknown) => {
        if (!current) return;
        loaded.value = { uri, failure: oneLine(error instanceof Error ? error.message : String(error)) };
        onUnavailable?.();
      },
    );
    return () => {
      current = false;
    };
  }, [uri, page, attempt.value]);
  return { loaded: loaded.value, retry: () => attempt.value++ };
}
