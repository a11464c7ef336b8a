import { expect, it } from 'vitest';

import { reduceChangeset } from '../../src/ahp/changeset-reducer';
import type { ChangesetFile, ChangesetState } from '../../src/ahp/changeset-types';

const file = (id: string, added = 1): ChangesetFile => ({ id, edit: { diff: { added } }, reviewed: false });
const undo = { id: 'undo', label: 'Undo', scopes: ['changeset'], status: 'idle' };
const redo = { id: 'redo', label: 'Redo', scopes: ['changeset'], status: 'disabled' };
const state: ChangesetState = { status: 'ready', files: [file('a'), file('b')], operations: [undo, redo] };
const error = { errorType: 'edits', message: 'The disk is full.' };

it.each([
  ['a status', { type: 'changeset/statusChanged', status: 'recomputing' }, { ...state, status: 'recomputing' }],
  ['an error', { type: 'changeset/statusChanged', status: 'error', error }, { ...state, status: 'error', error }],
  [
    'new content, and keeps operations that it does not name',
    { type: 'changeset/contentChanged', files: [file('c')] },
    { ...state, files: [file('c')] },
  ],
  [
    'new content with operations',
    { type: 'changeset/contentChanged', files: [], operations: [redo] },
    { ...state, files: [], operations: [redo] },
  ],
  ['a changed file at its place', { type: 'changeset/fileSet', file: file('a', 2) }, { ...state, files: [file('a', 2), file('b')] }],
  ['a new file at the end', { type: 'changeset/fileSet', file: file('0') }, { ...state, files: [file('a'), file('b'), file('0')] }],
  ['a removed file', { type: 'changeset/fileRemoved', fileId: 'a' }, { ...state, files: [file('b')] }],
  [
    'reviews',
    { type: 'changeset/filesReviewChanged', files: ['b', 'x'], reviewed: true },
    { ...state, files: [file('a'), { ...file('b'), reviewed: true }] },
  ],
  ['no operations', { type: 'changeset/operationsChanged' }, { status: 'ready', files: state.files }],
  [
    'a running operation',
    { type: 'changeset/operationStatusChanged', operationId: 'undo', status: 'running' },
    { ...state, operations: [{ ...undo, status: 'running' }, redo] },
  ],
  [
    'a failed operation',
    { type: 'changeset/operationStatusChanged', operationId: 'undo', status: 'error', error },
    { ...state, operations: [{ ...undo, status: 'error', error }, redo] },
  ],
  ['no files', { type: 'changeset/cleared' }, { ...state, files: [] }],
])('takes %s', (_, action, after) => {
  expect(reduceChangeset(state, action)).toEqual(after);
});

it('removes an error with the status', () => {
  const failed = reduceChangeset(state, { type: 'changeset/statusChanged', status: 'error', error });
  expect(reduceChangeset(failed, { type: 'changeset/statusChanged', status: 'ready', error })).toEqual(state);
});

it.each([
  { type: 'changeset/fileRemoved', fileId: 'x' },
  { type: 'changeset/fileSet' },
  { type: 'changeset/contentChanged', files: 'none' },
  { type: 'changeset/filesReviewChanged', files: ['a'], reviewed: false },
  { type: 'changeset/filesReviewChanged', files: 'a', reviewed: true },
  { type: 'changeset/operationStatusChanged', operationId: 'commit', status: 'running' },
  { type: 'changeset/unknown' },
])('returns the same state for %j', (action) => {
  expect(reduceChangeset(state, action)).toBe(state);
});
