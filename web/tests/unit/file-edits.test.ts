import { expect, it } from 'vitest';

import type { FileEdit } from '../../src/ahp/changeset-types';
import { RpcError } from '../../src/ahp/rpc';
import type { ResponsePart } from '../../src/ahp/types';
import { sessionChangesets, turnChangeset } from '../../src/edits/catalogue';
import {
  changeKind,
  diffUri,
  editsOfTurn,
  isBinary,
  lineCounts,
  shownPath,
  sortedFiles,
  summaryTotals,
  totals,
} from '../../src/edits/file-edits';
import { failureOf, reportOf } from '../../src/edits/operation-report';

const A = 'a'.repeat(64);
const B = 'b'.repeat(64);
const side = (path: string, digest: string) => ({ uri: `file://${path}`, content: { uri: `innkeeper-blob:/${digest}/${path.slice(1)}` } });
const counted = (added: number, removed: number) => ({ diff: { added, removed } });
const modified: FileEdit = { before: side('/x', A), after: side('/x', B), ...counted(2, 1) };

it.each<[string, FileEdit, string, string | undefined]>([
  ['a changed file', modified, 'modified', `innkeeper-diff:/${A}/${B}/x`],
  ['a new file', { after: side('/x', B) }, 'created', `innkeeper-diff:/-/${B}/x`],
  ['a deleted file', { before: side('/x', A) }, 'deleted', `innkeeper-diff:/${A}/-/x`],
  ['a renamed file', { before: side('/x', A), after: side('/y', A) }, 'renamed', `innkeeper-diff:/${A}/${A}/y`],
  ['content that is not stored', { before: side('/x', 'unknown'), after: side('/x', B) }, 'modified', undefined],
  ['content elsewhere', { after: { uri: 'file:///x', content: { uri: 'file:///x' } } }, 'created', undefined],
  ['a side without content', { after: { uri: 'file:///x' } as never }, 'created', undefined],
  ['nothing', {}, 'created', undefined],
])('describes %s', (_, edit, kind, uri) => {
  expect([changeKind(edit), diffUri(edit)]).toEqual([kind, uri]);
});

it('has counts only if the host sent numbers, and calls a file without them binary', () => {
  expect(lineCounts(modified)).toEqual({ added: 2, removed: 1 });
  expect(lineCounts({ diff: { added: 3 } })).toEqual({ added: 3, removed: 0 });
  expect(lineCounts({ diff: { added: '3' as never, removed: -1 } })).toBeUndefined();
  expect([modified, { after: side('/x', B) }, { after: side('/x', 'unknown') }].map(isBinary)).toEqual([false, true, false]);
  expect(totals([modified, { after: side('/y', B) }, modified])).toEqual({ files: 3, additions: 4, deletions: 2 });
  expect([undefined, null, {}, { files: 0 }].map(summaryTotals)).toEqual([undefined, undefined, undefined, undefined]);
  expect(summaryTotals({ files: 1, additions: 2 })).toEqual({ files: 1, additions: 2, deletions: 0 });
});

function turn(...edits: FileEdit[]): ResponsePart[] {
  return edits.map((edit, index) => ({
    kind: 'toolCall',
    toolCall: {
      status: 'completed',
      toolCallId: `${index}`,
      toolName: 'Edit',
      displayName: 'Edit',
      content: [{ type: 'fileEdit', ...edit }, { type: 'text' }],
    },
  }));
}

it('merges the edits of a turn per file, from the first state to the last', () => {
  const created: FileEdit = { after: side('/n', A), ...counted(3, 0) };
  const moved: FileEdit = { before: side('/n', A), after: side('/m', B), ...counted(1, 1) };
  const deleted: FileEdit = { before: side('/m', B), ...counted(0, 3) };
  const again: FileEdit = { before: side('/x', B), after: side('/x', A), ...counted(1, 1) };
  expect(editsOfTurn(turn(modified, created, moved))).toMatchObject([modified, { after: side('/m', B), ...counted(4, 1) }]);
  expect(editsOfTurn(turn(modified, again))).toEqual([]);
  expect(editsOfTurn(turn(created, moved, deleted))).toEqual([]);
  expect(editsOfTurn([undefined as never, { kind: 'toolCall' } as never, ...turn({})])).toEqual([]);
  const edits = [{ type: 'fileEdit', ...modified }];
  const command = { kind: 'toolCall', toolCall: { _meta: { 'innkeeper.edits': edits } } } as never;
  expect(editsOfTurn([command])).toMatchObject([modified]);
  expect(editsOfTurn([{ kind: 'toolCall', toolCall: { _meta: { 'innkeeper.edits': 7 } } } as never])).toEqual([]);
});

it('shows paths relative to the directory that contains them', () => {
  expect(shownPath('file:///inn/src/a%20b.rs', ['file:///inn/'])).toBe('src/a b.rs');
  expect(shownPath('file:///inner/a.rs', ['file:///inn', 'file:///'])).toBe('/inner/a.rs');
  expect(shownPath('file:///a.rs', undefined)).toBe('/a.rs');
});

it('sorts files by address and leaves out what is not a file', () => {
  const files = [{ id: 'b', edit: modified }, null, { id: 'c', edit: {} }, { id: 'a', edit: modified }] as never[];
  expect(sortedFiles({ status: 'ready', files }).map((file) => file.id)).toEqual(['a', 'b']);
  expect(sortedFiles({ status: 'ready' } as never)).toEqual([]);
});

it('finds the changesets of a session and of a turn', () => {
  const entry = (changeKind: string, uriTemplate: string, review = {}) => ({
    label: 'L',
    changeKind,
    uriTemplate,
    capabilities: { review },
  });
  const session = [entry('uncommitted', 's:/u'), entry('session', 's:/all'), entry('turn', 's:/turn/{turnId}'), entry('branch', 's:/b')];
  const chat = [entry('turn', 's:/chat/turn/{turnId}'), entry('session', 's:/chat/all')];
  expect(sessionChangesets(session, chat).map((each) => each.uri)).toEqual(['s:/all', 's:/u']);
  expect(sessionChangesets(undefined, chat).map((each) => each.uri)).toEqual(['s:/chat/all']);
  expect(sessionChangesets([null, { changeKind: 'session' }] as never, 'x' as never)).toEqual([]);
  expect(turnChangeset(session, chat, 'a/b')).toEqual({
    uri: 's:/chat/turn/a%2Fb',
    kind: 'turn',
    label: 'L',
    description: '',
    reviewable: true,
  });
  expect(turnChangeset(session, undefined, 't')?.uri).toBe('s:/turn/t');
  expect(turnChangeset([], undefined, 't')).toBeUndefined();
});

it('reads the refused files of a result and of an error', () => {
  const refused = [{ uri: 'file:///x', reason: 'changed later', preview: 'innkeeper-blob:/1/x', canForce: true }, { uri: 3 }, null];
  const report = reportOf({ message: { markdown: 'Left 1 file alone.\n- `x`: changed later' }, _meta: { 'innkeeper.refused': refused } });
  expect(report).toEqual({ message: 'Left 1 file alone.', refused: [refused[0]], unchanged: false, failed: false });
  expect(failureOf(new RpcError(-32011, 'Could not undo 1 file.\n- x', { refused }))).toEqual({
    message: 'Could not undo 1 file.',
    refused: [refused[0]],
    unchanged: true,
    failed: false,
  });
  expect(failureOf(new Error('no connection'))).toEqual({ message: 'no connection', refused: [], unchanged: true, failed: true });
  expect(reportOf(null)).toEqual({ message: '', refused: [], unchanged: false, failed: false });
});
