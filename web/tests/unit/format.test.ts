import { expect, it } from 'vitest';

import { activityOf, ago, directoryPath, directoryUri, duration, folderName, usageText } from '../../src/format';

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

it('names only the usage that is known', () => {
  expect(usageText({ inputTokens: 12, outputTokens: 3, cacheReadTokens: 0, model: 'm' })).toBe('12 tokens in · 3 out · m');
  expect(usageText({})).toBe('');
});
