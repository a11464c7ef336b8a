// What the edits of files say: kind of change, counts, and where their diff can be read. The values come from agents
// and may be anything: what does not match is absent.

import type { ChangesetFile, ChangesetState, ChangesSummary, FileEdit, FileEditSide } from '../ahp/changeset-types';
import type { ResponsePart, ToolCall, Uri } from '../ahp/types';
import { directoryPath } from '../format';

export type ChangeKind = 'created' | 'deleted' | 'renamed' | 'modified';

export interface LineCounts {
  added: number;
  removed: number;
}

const BLOB = /^innkeeper-blob:\/([0-9a-f]{64})\/([^/]*)$/;

export function changeKind(edit: FileEdit): ChangeKind {
  if (!edit.before) return 'created';
  if (!edit.after) return 'deleted';
  return edit.before.uri === edit.after.uri ? 'modified' : 'renamed';
}

/** The address of the file; for a renamed file, the new one. */
export function fileUri(edit: FileEdit): Uri {
  const uri = edit.after?.uri ?? edit.before?.uri;
  return typeof uri === 'string' ? uri : '';
}

/** The counts of lines; undefined for an edit that has none, such as that of a binary file. */
export function lineCounts(edit: FileEdit): LineCounts | undefined {
  const { added, removed } = edit.diff ?? {};
  return isCount(added) || isCount(removed) ? { added: countOf(added), removed: countOf(removed) } : undefined;
}

/** The address of an edit's diff; undefined if the content of a side is not stored. */
export function diffUri(edit: FileEdit): Uri | undefined {
  const before = blob(edit.before);
  const after = blob(edit.after);
  if ((edit.before && !before) || (edit.after && !after)) return undefined;
  const name = after?.name ?? before?.name;
  return name === undefined ? undefined : `innkeeper-diff:/${before?.digest ?? '-'}/${after?.digest ?? '-'}/${name}`;
}

/** A file whose contents are stored, but have no lines to count. */
export function isBinary(edit: FileEdit): boolean {
  return lineCounts(edit) === undefined && diffUri(edit) !== undefined;
}

/** The edits that a tool call made: in its result, or in its metadata if it is a command. */
export function editsOfCall(call: ToolCall): FileEdit[] {
  const inMeta = call._meta?.['innkeeper.edits'];
  const content = [call.content, inMeta].flatMap((edits) => (Array.isArray(edits) ? edits : []));
  return content.filter((each) => each?.type === 'fileEdit' && (each.before || each.after)) as FileEdit[];
}

/** The edits that a tool call would make. */
export function plannedEdits(call: ToolCall): FileEdit[] {
  const items = call.edits?.items;
  return Array.isArray(items) ? items.filter((edit) => edit?.before || edit?.after) : [];
}

/** The edits of a turn's tool calls, one for each file: from its first state to its last one. */
export function editsOfTurn(parts: readonly ResponsePart[]): FileEdit[] {
  const merged = new Map<Uri, FileEdit>();
  for (const part of parts) {
    if (part?.kind !== 'toolCall' || !part.toolCall) continue;
    for (const edit of editsOfCall(part.toolCall)) merge(merged, edit);
  }
  return [...merged.values()];
}

/** Adds an edit. The sums of the counts are not exact, but the best known without the contents. */
function merge(merged: Map<Uri, FileEdit>, edit: FileEdit): void {
  const from = edit.before?.uri ?? fileUri(edit);
  const earlier = merged.get(from);
  merged.delete(from);
  if (!earlier) {
    merged.set(fileUri(edit), edit);
    return;
  }
  const counts = [lineCounts(earlier), lineCounts(edit)];
  const next: FileEdit = {
    ...(earlier.before ? { before: earlier.before } : {}),
    ...(edit.after ? { after: edit.after } : {}),
  };
  // Without counts of both edits the sum says nothing.
  if (counts[0] && counts[1]) {
    next.diff = { added: counts[0].added + counts[1].added, removed: counts[0].removed + counts[1].removed };
  }
  if (!isUnchanged(next)) merged.set(fileUri(next), next);
}

function isUnchanged({ before, after }: FileEdit): boolean {
  if (!before || !after) return before === after;
  return before.uri === after.uri && blob(before) !== undefined && before.content.uri === after.content.uri;
}

/** The files of a changeset, sorted by their addresses. Files that were added later are at the end of its state. */
export function sortedFiles(state: ChangesetState | undefined): ChangesetFile[] {
  const files = Array.isArray(state?.files) ? state.files : [];
  return files
    .filter((file) => typeof file?.id === 'string' && (file.edit?.before || file.edit?.after))
    .sort((one, other) => (one.id < other.id ? -1 : one.id > other.id ? 1 : 0));
}

export function totals(edits: readonly FileEdit[]): Required<ChangesSummary> {
  const counts = edits.map(lineCounts);
  return {
    files: edits.length,
    additions: counts.reduce((sum, each) => sum + (each?.added ?? 0), 0),
    deletions: counts.reduce((sum, each) => sum + (each?.removed ?? 0), 0),
  };
}

/** Counts that a host reports; undefined if nothing was changed. */
export function summaryTotals(changes: ChangesSummary | null | undefined): Required<ChangesSummary> | undefined {
  const files = countOf(changes?.files);
  const additions = countOf(changes?.additions);
  const deletions = countOf(changes?.deletions);
  return files + additions + deletions > 0 ? { files, additions, deletions } : undefined;
}

/** The path of a file, relative to the first of the directories that contains it. */
export function shownPath(uri: Uri, directories: readonly Uri[] | undefined): string {
  const path = directoryPath(uri);
  for (const directory of directories ?? []) {
    const root = `${directoryPath(directory).replace(/\/+$/, '')}/`;
    if (root !== '/' && path.startsWith(root)) return path.slice(root.length);
  }
  return path;
}

function blob(side: FileEditSide | undefined): { digest: string; name: string } | undefined {
  const match = BLOB.exec(String(side?.content?.uri ?? ''));
  return match ? { digest: match[1]!, name: match[2]! } : undefined;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) >= 0;
}

function countOf(value: unknown): number {
  return isCount(value) ? value : 0;
}
