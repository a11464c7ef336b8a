import { expect, it } from 'vitest';

import { type DiffHunk, type DiffLine, parseDiff, shownLines } from '../../src/edits/diff-document';
import { gapBefore, hunkPlace, hunkRange, pairLines } from '../../src/edits/diff-layout';
import { diffDocument, revertLines } from '../fake-diff.mjs';

const parsed = (before: string | undefined, after: string | undefined) => parseDiff(JSON.stringify(diffDocument(before, after)))!;
const texts = (lines: readonly DiffLine[]) => lines.map((line) => line.parts.map(([text]) => text).join(''));
const numbered = (count: number) => Array.from({ length: count }, (_, index) => `${index + 1}\n`);
const parse = (lines: unknown[]) => {
  const { hunks, returns } = parseDiff(JSON.stringify({ hunks: [{ oldStart: 1, newStart: 1, lines }] }))!;
  return shownLines(hunks[0]!.lines, returns);
};

it('reads lines with numbers, emphasis and a missing line break', () => {
  const { hunks, added, removed } = parsed('one\ntwo\n', 'one\ntwice');
  expect([added, removed]).toEqual([1, 1]);
  expect(hunks[0]!.lines).toEqual([
    { kind: 'context', old: 1, new: 1, parts: [['one', false]], noNewline: false },
    {
      kind: 'removed',
      old: 2,
      parts: [
        ['tw', false],
        ['o', true],
      ],
      noNewline: false,
    },
    {
      kind: 'added',
      new: 2,
      parts: [
        ['tw', false],
        ['ice', true],
      ],
      noNewline: true,
    },
  ]);
});

it.each(['', 'null', '3', '[]', '{}', '{"hunks":3}'])('does not read %j', (json) => {
  expect(parseDiff(json)).toBeUndefined();
});

it('leaves out what is not a line', () => {
  const lines = parse([null, 3, { kind: 'moved', parts: [['x', false]] }, { kind: 'added', new: -1, parts: [3, ['y'], [null, true]] }]);
  expect(lines).toEqual([{ kind: 'added', parts: [['y', false]], noNewline: false }]);
  expect(parseDiff('{"binary":true}')).toEqual({ binary: true, added: 0, removed: 0, truncated: false, returns: true, hunks: [] });
  expect(parseDiff('{"hunks":[null],"truncated":true}')).toMatchObject({ truncated: true, hunks: [{ lines: [] }] });
});

it('makes hidden characters visible and bounds long lines', () => {
  expect(texts(parse([{ kind: 'added', parts: [['a\u202eb\u200b\tc', false]] }]))).toEqual(['a⟨U+202E⟩b⟨U+200B⟩\tc']);
  const [long] = texts(
    parse([
      {
        kind: 'added',
        parts: [
          ['x'.repeat(2_000), false],
          ['y'.repeat(500), true],
        ],
      },
    ]),
  );
  expect(long).toBe(`${'x'.repeat(2_000)}${'y'.repeat(100)} … 400 more characters`);
});

it('shows carriage returns only where some lines have none', () => {
  const line = (text: string) => ({ kind: 'added', parts: [[text, false]] });
  expect(texts(parse([line('a\r'), line('b\r')]))).toEqual(['a', 'b']);
  expect(texts(parse([line('a\r'), line('b')]))).toEqual(['a␍', 'b']);
});

it('pairs removed lines with the added lines after them', () => {
  const line = (kind: DiffLine['kind'], text: string): DiffLine => ({ kind, parts: [[text, false]], noNewline: false });
  const lines = [
    line('removed', '1'),
    line('removed', '2'),
    line('added', '3'),
    line('context', '4'),
    line('added', '5'),
    line('removed', '6'),
  ];
  const words = pairLines(lines).map(({ left, right }) => [left, right].map((each) => each?.parts[0]?.[0] ?? '-').join(''));
  expect(words).toEqual(['13', '2-', '44', '-5', '6-']);
});

it.each<[string, string[], string[], number, number]>([
  ['a replaced line', numbered(9), numbered(9).with(4, 'x\n'), 4, 5],
  ['two near changes', numbered(9), numbered(9).with(2, 'x\n').with(5, 'y\n'), 2, 6],
  ['added lines', numbered(4), [...numbered(2), 'x\n', 'y\n', ...numbered(4).slice(2)], 2, 4],
  ['removed lines', numbered(6), numbered(6).toSpliced(2, 2), 2, 2],
  ['removed lines at the start', numbered(4), numbered(4).slice(2), 0, 0],
  ['removed lines at the end', numbered(4), numbered(4).slice(0, 2), 2, 2],
  ['a removal after a change', numbered(8), numbered(8).with(1, 'x\n').toSpliced(3, 1), 1, 3],
  ['a new file', [], numbered(3), 0, 3],
  ['a deleted content', numbered(3), [], 0, 0],
])('undoes %s by its lines after the change', (_, before, after, start, end) => {
  const { hunks } = parsed(before.join(''), after.join(''));
  expect(hunks).toHaveLength(1);
  const range = hunkRange(hunks[0]!);
  expect([range.start.line, range.end.line]).toEqual([start, end]);
  expect(revertLines(before.join(''), after.join(''), start, end)).toBe(before.join(''));
});

it('undoes one of several hunks', () => {
  const before = numbered(40);
  const after = before.toSpliced(30, 2, 'x\n').toSpliced(5, 1);
  const { hunks } = parsed(before.join(''), after.join(''));
  const [first, second] = hunks.map(hunkRange);
  expect(revertLines(before.join(''), after.join(''), first!.start.line, first!.end.line)).toBe(before.toSpliced(30, 2, 'x\n').join(''));
  expect(revertLines(before.join(''), after.join(''), second!.start.line, second!.end.line)).toBe(before.toSpliced(5, 1).join(''));
});

it('says which unchanged lines are between the hunks', () => {
  const before = numbered(60);
  const after = before.toSpliced(50, 1).toSpliced(20, 0, 'x\n', 'y\n');
  const { hunks } = parsed(before.join(''), after.join(''));
  expect(hunks.map((_, index) => gapBefore(hunks, index))).toEqual([
    { from: 1, count: 17, oldOffset: 0 },
    { from: 26, count: 24, oldOffset: -2 },
  ]);
  expect(hunks.map(hunkPlace)).toEqual(['Lines 18–25', 'Lines 50–55']);
  const empty: DiffHunk[] = [{ oldStart: 0, newStart: 0, lines: [] }];
  expect([gapBefore(empty, 0), gapBefore(empty, 1), hunkPlace(empty[0]!), hunkRange(empty[0]!).start.line]).toEqual([
    undefined,
    undefined,
    '',
    0,
  ]);
});
