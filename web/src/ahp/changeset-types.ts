// File edits and changesets, as they are on the wire.

import type { ErrorInfo, Markdownish, OutputReference, Uri } from './types';

/** One side of an edit: the file's address, and where its content at that time can be read. */
export interface FileEditSide {
  uri: Uri;
  content: OutputReference;
}

/** Without `before` the file was created, without `after` deleted; two different addresses are a rename. */
export interface FileEdit {
  before?: FileEditSide;
  after?: FileEditSide;
  diff?: { added?: number; removed?: number };
}

/** The sums of all changes of a session or chat. */
export interface ChangesSummary {
  additions?: number;
  deletions?: number;
  files?: number;
}

/** An entry in the catalogue of a session or chat. */
export interface Changeset {
  label: string;
  uriTemplate: string;
  description?: string;
  changeKind: string;
  capabilities?: { review?: object };
}

export interface ChangesetFile {
  id: string;
  edit: FileEdit;
  reviewed?: boolean;
  _meta?: Record<string, unknown>;
}

export interface ChangesetOperation {
  id: string;
  label: string;
  description?: string;
  scopes: string[];
  confirmation?: Markdownish;
  status: string;
  error?: ErrorInfo;
}

export interface ChangesetState {
  status: string;
  error?: ErrorInfo;
  files: ChangesetFile[];
  operations?: ChangesetOperation[];
}

/** Lines and characters are counted from 0; the end is not part of the range. */
export interface TextRange {
  start: { line: number; character: number };
  end: { line: number; character: number };
}

export type OperationTarget = { kind: 'resource'; resource: Uri } | { kind: 'range'; resource: Uri; range: TextRange };

export interface OperationResult {
  message?: Markdownish;
  _meta?: Record<string, unknown>;
}
