// Applies an action to the state of a changeset. Pure: an action that is unknown or malformed returns the same object.

import type { ChangesetFile, ChangesetOperation, ChangesetState } from './changeset-types';
import type { Action, ErrorInfo } from './types';

export function reduceChangeset(state: ChangesetState, action: Action): ChangesetState {
  switch (action.type) {
    case 'changeset/statusChanged':
      return withStatus(state, action);
    case 'changeset/contentChanged':
      return contentChanged(state, action);
    case 'changeset/fileSet':
      return fileSet(state, action['file'] as ChangesetFile | undefined);
    case 'changeset/fileRemoved':
      return fileRemoved(state, action['fileId']);
    case 'changeset/filesReviewChanged':
      return reviewChanged(state, action);
    case 'changeset/operationsChanged':
      return withOperations(state, action['operations']);
    case 'changeset/operationStatusChanged':
      return operationStatusChanged(state, action);
    case 'changeset/cleared':
      return files(state).length === 0 ? state : { ...state, files: [] };
    default:
      return state;
  }
}

/** Sets the status; only the status `error` has an error. */
function withStatus<S extends { status: string; error?: ErrorInfo }>(state: S, action: Action): S {
  const next = { ...state, status: String(action['status']) };
  delete next.error;
  if (next.status === 'error' && action['error']) next.error = action['error'] as ErrorInfo;
  return next;
}

function contentChanged(state: ChangesetState, action: Action): ChangesetState {
  const changed = action['files'];
  if (!Array.isArray(changed)) return state;
  const next = { ...state, files: changed as ChangesetFile[] };
  return Array.isArray(action['operations']) ? withOperations(next, action['operations']) : next;
}

function fileSet(state: ChangesetState, file: ChangesetFile | undefined): ChangesetState {
  if (typeof file?.id !== 'string') return state;
  const known = files(state);
  const index = known.findIndex((each) => each.id === file.id);
  return { ...state, files: index < 0 ? [...known, file] : known.with(index, file) };
}

function fileRemoved(state: ChangesetState, id: unknown): ChangesetState {
  const others = files(state).filter((file) => file.id !== id);
  return others.length === files(state).length ? state : { ...state, files: others };
}

function reviewChanged(state: ChangesetState, action: Action): ChangesetState {
  const ids = new Set<unknown>(Array.isArray(action['files']) ? action['files'] : []);
  const reviewed = action['reviewed'] === true;
  const isChanged = (file: ChangesetFile) => ids.has(file.id) && file.reviewed !== reviewed;
  if (!files(state).some(isChanged)) return state;
  return { ...state, files: files(state).map((file) => (isChanged(file) ? { ...file, reviewed } : file)) };
}

function withOperations(state: ChangesetState, operations: unknown): ChangesetState {
  const { operations: _before, ...rest } = state;
  return Array.isArray(operations) ? { ...rest, operations: operations as ChangesetOperation[] } : rest;
}

function operationStatusChanged(state: ChangesetState, action: Action): ChangesetState {
  const index = state.operations?.findIndex((operation) => operation.id === action['operationId']) ?? -1;
  const operation = state.operations?.[index];
  if (!state.operations || !operation) return state;
  return { ...state, operations: state.operations.with(index, withStatus(operation, action)) };
}

function files(state: ChangesetState): ChangesetFile[] {
  return Array.isArray(state.files) ? state.files : [];
}
