import { expect, it } from 'vitest';

import { conflictLines } from '../../src/edits/conflict-lines';

const numbered = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, index) => `line ${from + index}`);
const CONFLICT = ['<<<<<<< current', 'mine', '=======', 'theirs', '>>>>>>> before'];
const texts = (lines: string[]) => conflictLines(`${lines.join('\n')}\n`).map((line) => line.text);

it('shows conflicts with three lines around them', () => {
  const shown = texts([...numbered(1, 10), ...CONFLICT, ...numbered(11, 30), ...CONFLICT, 'line 31', 'line 32']);
  expect(shown).toEqual([
    '… 7 lines',
    ...['line 8', 'line 9', 'line 10', ...CONFLICT, 'line 11', 'line 12', 'line 13'],
    '… 14 lines',
    ...['line 28', 'line 29', 'line 30', ...CONFLICT, 'line 31', 'line 32'],
  ]);
  expect(texts(['a', 'b', 'c', 'd', ...CONFLICT])[0]).toBe('… 1 line');
});

it('marks the marker lines', () => {
  const kinds = conflictLines([...numbered(1, 5), ...CONFLICT].join('\n')).map((line) => line.kind);
  expect(kinds).toEqual(['omission', 'plain', 'plain', 'plain', 'marker', 'plain', 'marker', 'plain', 'marker']);
});

it('shows a text without a complete conflict as it is', () => {
  expect(texts(['a', '<<<<<<< current', 'b'])).toEqual(['a', '<<<<<<< current', 'b']);
  expect(conflictLines('')).toEqual([{ text: '', kind: 'plain' }]);
});
