// The hunks of a diff as tables, with the unchanged lines between them on request.

import { useSignal } from '@preact/signals';
import { useContext, useMemo, useRef } from 'preact/hooks';

import type { FileEdit, TextRange } from '../../ahp/changeset-types';
import { type DiffDocument, type DiffHunk, type DiffLine, shownLines } from '../../edits/diff-document';
import { type Gap, gapBefore, hunkPlace, hunkRange } from '../../edits/diff-layout';
import type { DiffStyle } from '../../edits/diff-style';
import { oneLine } from '../../format';
import { resourceText } from '../../resource-text';
import { visibleText } from '../../tool-input';
import { PageContext } from '../page-context';
import { useFocusReturn } from '../use-focus-return';
import { DiffLines } from './DiffLines';

/** The unchanged lines that one click shows. */
const GAP_LINES = 200;

interface DiffHunksProps {
  document: DiffDocument;
  edit: FileEdit;
  style: DiffStyle;
  lines: number;
  onUndo: ((range: TextRange) => void) | undefined;
  blocked: string | undefined;
}

export function DiffHunks({ document, edit, style, lines, onUndo, blocked }: DiffHunksProps) {
  const shown = useSignal(lines);
  const { hunks } = document;
  const total = hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0);
  let room = shown.value;
  return (
    <>
      {hunks.map((hunk, index) => {
        const count = Math.min(hunk.lines.length, room);
        room -= count;
        if (count === 0) return null;
        const gap = gapBefore(hunks, index);
        return (
          // A hunk that was undone must not pass its state on to another one.
          <div key={`${hunk.oldStart},${hunk.newStart},${hunk.lines.length}`}>
            {gap && <HiddenLines gap={gap} edit={edit} style={style} />}
            <HunkHead hunk={hunk} onUndo={onUndo} blocked={blocked} />
            <HunkLines hunk={hunk} count={count} returns={document.returns} style={style} />
          </div>
        );
      })}
      {total > shown.value && (
        <button type="button" class="more" onClick={() => (shown.value += lines)}>
          Show more lines ({(total - shown.value).toLocaleString()} are hidden)
        </button>
      )}
    </>
  );
}

interface HunkLinesProps {
  hunk: DiffHunk;
  /** How many of its lines are shown. */
  count: number;
  returns: boolean;
  style: DiffStyle;
}

function HunkLines({ hunk, count, returns, style }: HunkLinesProps) {
  const lines = useMemo(() => shownLines(hunk.lines.slice(0, count), returns), [hunk, count, returns]);
  return <DiffLines lines={lines} style={style} />;
}

interface HunkHeadProps {
  hunk: DiffHunk;
  onUndo: ((range: TextRange) => void) | undefined;
  blocked: string | undefined;
}

function HunkHead({ hunk, onUndo, blocked }: HunkHeadProps) {
  const place = useRef<HTMLDivElement>(null);
  useFocusReturn(place, (head) => head.closest('.file')?.querySelector<HTMLElement>('.file-toggle'));
  return (
    <div class="hunk-head" ref={place}>
      <span>{hunkPlace(hunk)}</span>
      {onUndo && (
        <button
          type="button"
          class="text-button"
          aria-disabled={blocked !== undefined}
          title={blocked}
          onClick={() => blocked === undefined && onUndo(hunkRange(hunk))}
        >
          Undo this hunk<span class="visually-hidden">, {hunkPlace(hunk)}</span>
        </button>
      )}
    </div>
  );
}

interface HiddenLinesProps {
  gap: Gap;
  edit: FileEdit;
  style: DiffStyle;
}

/** Unchanged lines, which the diff does not contain: they are read from the content of the file. */
function HiddenLines({ gap, edit, style }: HiddenLinesProps) {
  const page = useContext(PageContext);
  const lines = useSignal<readonly DiffLine[] | undefined>(undefined);
  const failure = useSignal('');
  const uri = edit.after?.content?.uri ?? '';
  const count = Math.min(gap.count, GAP_LINES);
  const words = gap.count === 1 ? '1 unchanged line' : `${gap.count.toLocaleString()} unchanged lines`;
  const show = async () => {
    try {
      if (!page) throw new Error('not connected to the host');
      const content = resourceText(await page.readResource(uri)).split('\n');
      lines.value = content.slice(gap.from - 1, gap.from - 1 + count).map((text, index) => contextLine(text, gap, index));
    } catch (error) {
      failure.value = oneLine(error instanceof Error ? error.message : String(error));
    }
  };
  if (failure.value) return <p class="diff-remark">The lines cannot be shown: {failure.value}</p>;
  if (lines.value === undefined) {
    return (
      <button type="button" class="diff-gap" aria-label={`Show ${words}`} onClick={() => void show()}>
        <span aria-hidden="true">⋯</span> {words}
      </button>
    );
  }
  const rest = { ...gap, from: gap.from + count, count: gap.count - count };
  return (
    <>
      <DiffLines lines={lines.value} style={style} />
      {rest.count > 0 && <HiddenLines gap={rest} edit={edit} style={style} />}
    </>
  );
}

function contextLine(text: string, { from, oldOffset }: Gap, index: number): DiffLine {
  const line = from + index;
  const part = visibleText(text.replace(/\r$/, ''));
  return { kind: 'context', old: line + oldOffset, new: line, parts: [[part, false]], noNewline: false };
}
