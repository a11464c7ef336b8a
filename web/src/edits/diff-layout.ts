// Arranges the lines of a diff: two columns, the gaps between hunks, and the lines that an undo of a hunk concerns.

import type { TextRange } from '../ahp/changeset-types';
import type { DiffHunk, DiffLine } from './diff-document';

/** A row with the line before the change on the left and the line after it on the right. */
export interface LinePair {
  left?: DiffLine;
  right?: DiffLine;
}

/** Unchanged lines that a diff does not contain: line numbers, counted from 1, of the content after the change. */
export interface Gap {
  from: number;
  count: number;
  /** What to add to a line number for the number before the change. */
  oldOffset: number;
}

/** Puts removed lines next to the added lines that follow them. */
export function pairLines(lines: readonly DiffLine[]): LinePair[] {
  const pairs: LinePair[] = [];
  let removed: DiffLine[] = [];
  let added: DiffLine[] = [];
  const flush = () => {
    for (let index = 0; index < Math.max(removed.length, added.length); index++) {
      const [left, right] = [removed[index], added[index]];
      pairs.push({ ...(left ? { left } : {}), ...(right ? { right } : {}) });
    }
    removed = [];
    added = [];
  };
  for (const line of lines) {
    if (line.kind === 'removed') {
      if (added.length > 0) flush();
      removed.push(line);
    } else if (line.kind === 'added') {
      added.push(line);
    } else {
      flush();
      pairs.push({ left: line, right: line });
    }
  }
  flush();
  return pairs;
}

/** The lines of the content after the change that a hunk added; empty, at the right place, if it only removed lines. */
export function hunkRange(hunk: DiffHunk): TextRange {
  const first = hunk.lines.find((line) => line.new !== undefined)?.new ?? hunk.newStart;
  let next = Math.max(0, first - 1);
  let start: number | undefined;
  let end = next;
  for (const line of hunk.lines) {
    if (line.kind === 'context') {
      next = line.new ?? next + 1;
      continue;
    }
    start ??= next;
    if (line.kind === 'added') next = line.new ?? next + 1;
    end = next;
  }
  return { start: { line: start ?? next, character: 0 }, end: { line: end, character: 0 } };
}

/** The unchanged lines before a hunk that are not shown. A hunk with such lines starts with an unchanged line. */
export function gapBefore(hunks: readonly DiffHunk[], index: number): Gap | undefined {
  const first = hunks[index]?.lines[0];
  if (first?.kind !== 'context' || first.old === undefined || first.new === undefined) return undefined;
  const before = hunks[index - 1];
  const from = before ? lastNew(before) + 1 : 1;
  const count = first.new - from;
  return count > 0 ? { from, count, oldOffset: first.old - first.new } : undefined;
}

function lastNew(hunk: DiffHunk): number {
  return hunk.lines.findLast((line) => line.new !== undefined)?.new ?? Math.max(0, hunk.newStart - 1);
}

/** Where a hunk is, in words. */
export function hunkPlace(hunk: DiffHunk): string {
  const numbers = hunk.lines.flatMap((line) => line.new ?? []);
  if (numbers.length === 0) return hunk.oldStart > 0 ? `From line ${hunk.oldStart}` : '';
  const [from, to] = [numbers[0]!, numbers.at(-1)!];
  return from === to ? `Line ${from}` : `Lines ${from}–${to}`;
}
