import { expect, it } from 'vitest';

import { activityOf, ago, directoryPath, directoryUri, duration, folderName, oneLine, readableInput, sourceOf } from '../../src/format';

it('turns a typed path into a file address and back', () => {
  for (const path of ['/home/guest', '/with space/ü#?%', 'C:/Users/guest', '/']) {
    expect(directoryPath(directoryUri(path)!), path).toBe(path);
  }
  expect(directoryUri('/with space/#1')).toBe('file:///with%20space/%231');
  expect(directoryUri(' C:\\Users\\guest ')).toBe('file:///C:/Users/guest');
  expect(directoryUri('projects')).toBeUndefined();
  expect(directoryUri('~/projects')).toBeUndefined();
  expect(directoryPath('vscode-remote://x/y')).toBe('vscode-remote://x/y');
  expect(directoryPath('file:///%E0%A4%A')).toBe('file:///%E0%A4%A');
});

it('names a folder by its last part', () => {
  expect(folderName('file:///home/guest/my%20inn/')).toBe('my inn');
  expect(folderName('file:///')).toBe('/');
});

it('reads the activity out of a status with flags', () => {
  expect([1, 1 | 32, 2, 8, 24, 24 | 64, 0].map(activityOf)).toEqual(['idle', 'idle', 'error', 'running', 'waiting', 'waiting', 'idle']);
});

it('says how long ago and how long', () => {
  const now = Date.parse('2026-11-15T12:00:00Z');
  expect(ago('2026-11-15T11:59:50Z', now)).toBe('now');
  expect(ago('2026-11-15T11:30:00Z', now)).toBe('30 min');
  expect(ago('2026-11-15T09:00:00Z', now)).toBe('3 h');
  expect(ago('2026-11-10T12:00:00Z', now)).toBe('5 d');
  expect(ago('not a time', now)).toBe('');
  expect([40, 1234, 42_000, 125_000].map(duration)).toEqual(['40 ms', '1.2 s', '42 s', '2 min 5 s']);
});

it('leaves out numbers that cannot be meant', () => {
  expect([undefined, null, -1, 1e300, Number.NaN, '5'].map((value) => duration(value as number))).toEqual(['', '', '', '', '', '']);
});

it('makes one bounded line of a label', () => {
  expect(oneLine('two\nlines\u202egnp.exe')).toBe('two lines\ufffdgnp.exe');
  expect(oneLine(`${'x'.repeat(199)}😀😀`)).toBe(`${'x'.repeat(199)}…`);
  expect([undefined, null, 7, { markdown: 'x' }].map((value) => oneLine(value))).toEqual(['', '', '', '']);
});

it('indents the JSON of a tool input, unless that multiplies its size', () => {
  expect(readableInput('{"a":[1]}')).toBe('{\n  "a": [\n    1\n  ]\n}');
  const deep = '['.repeat(4_000) + ']'.repeat(4_000);
  const long = `["${'x'.repeat(100_000)}"]`;
  for (const input of [deep, long, '{"a":', 'plain']) expect(readableInput(input) === input).toBe(true);
});

it('gives the source of anything', () => {
  const circular: Record<string, unknown> = {};
  circular['self'] = circular;
  expect([{ content: 'text' }, { a: 1 }, null, undefined].map(sourceOf)).toEqual(['text', '{"a":1}', 'null', 'undefined']);
  expect(sourceOf(circular)).toMatch(/nested/);
});
