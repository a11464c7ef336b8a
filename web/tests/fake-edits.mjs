// The file edits of the fake host: contents, diffs, changesets and the operations on them. Only the contents that a
// script names exist; there is no file system.

import { createHash } from 'node:crypto';

import { diffDocument, revertLines } from './fake-diff.mjs';

const BLOB = /^innkeeper-blob:\/([0-9a-f]{64})\//;
const DIFF = /^innkeeper-diff:\/([0-9a-f]{64}|-)\/([0-9a-f]{64}|-)\//;

export class FakeEdits {
  #contents = new Map();

  /** Content for `resourceRead`; undefined if the address is not one of edits. */
  read(uri) {
    const blob = BLOB.exec(uri);
    if (blob) return resource(this.#contents.get(blob[1]));
    const diff = DIFF.exec(uri);
    if (!diff) return undefined;
    const [before, after] = diff.slice(1).map((digest) => (digest === '-' ? undefined : this.#contents.get(digest)));
    return resource(JSON.stringify(diffDocument(before, after)));
  }

  /** The wire form of a change; absent contents are `undefined` or `null`. */
  fileEdit({ uri, from = uri, before, after, unknown }) {
    const { added, removed, binary } = diffDocument(before ?? undefined, after ?? undefined);
    return {
      ...(before == null ? {} : { before: this.#side(from, before, unknown) }),
      ...(after == null ? {} : { after: this.#side(uri, after) }),
      ...(binary || unknown ? {} : { diff: { added, removed } }),
    };
  }

  /** A notice stands for a content that is not known. */
  #side(uri, known, unknown = false) {
    const content = unknown ? 'The content of this file is not available.\n' : known;
    return { uri, content: { uri: this.store(content, uri.split('/').at(-1)), sizeHint: content.length } };
  }

  store(content, name) {
    const digest = createHash('sha256').update(content).digest('hex');
    this.#contents.set(digest, content);
    return `innkeeper-blob:/${digest}/${encodeURIComponent(name)}`;
  }

  /** The state of a changeset; undefined if the session has no such changeset. */
  state(session, channel) {
    const kind = channel.slice(`${session.uri}/changeset/`.length);
    if (!session.changes || !channel.startsWith(`${session.uri}/changeset/`)) return undefined;
    const turn = /^turn\/(.+)$/.exec(kind)?.[1];
    if (turn === undefined && kind !== 'session' && kind !== 'uncommitted') return undefined;
    const files = folded(session.changes.filter((change) => turn === undefined || change.turnId === turn));
    return {
      status: 'ready',
      files: files.map((change) => this.#file(session, change)),
      operations: operations(session, turn === undefined ? kind : 'turn'),
    };
  }

  #file(session, change) {
    const { uri, sources, overlaps, mixed, notUndoable } = change;
    const edit = { sources, ...(overlaps ? { overlaps } : {}), ...(mixed ? { mixed } : {}), ...(notUndoable ? { notUndoable } : {}) };
    return { id: uri, edit: this.fileEdit(change), reviewed: session.kept.has(uri), _meta: { 'innkeeper.edit': edit } };
  }

  /** Adds a change of a turn. */
  add(session, turnId, change) {
    session.changes ??= [];
    session.kept ??= new Set();
    session.changes.push({ sources: ['tool'], ...change, turnId });
    session.redo = undefined;
  }

  /** Runs an operation; returns its result. */
  run(session, { channel, operationId, target, _meta }) {
    const turn = /\/changeset\/turn\/(.+)$/.exec(channel)?.[1];
    if (operationId === 'keep') return this.#keep(session, target);
    if (operationId === 'redo') return this.#redo(session);
    const inScope = (change) => {
      if (target) return change.uri === target.resource && (turn === undefined || change.turnId === turn);
      if (operationId === 'restore') return firstTurn(session, change.turnId) >= firstTurn(session, turn);
      return (turn === undefined || change.turnId === turn) && !session.kept.has(change.uri);
    };
    const wanted = session.changes.filter(inScope);
    const refused = wanted.filter((change) => change.notUndoable || (change.conflict && _meta?.['innkeeper.force'] !== true));
    const undone = wanted.filter((change) => !refused.includes(change));
    if (undone.length > 0) this.#undo(session, undone, target, operationId);
    const count = (changes) => fileWords(new Set(changes.map((change) => change.uri)).size);
    const did = operationId === 'restore' ? 'Restored' : 'Undid the changes of';
    const refusals = refused.map((change) => this.#refusal(change));
    const listed = refusals.map(({ uri, reason }) => `\n- \`${uri.split('/').at(-1)}\`: ${reason}`).join('');
    if (refused.length > 0 && undone.length === 0) {
      throw Object.assign(new Error(`Could not undo ${count(refused)}.${listed}`), { code: -32011, data: { refused: refusals } });
    }
    if (refused.length === 0) return { message: { markdown: `${did} ${count(undone)}.` } };
    const markdown = `${did} ${count(undone)}. Left ${count(refused)} alone.${listed}`;
    return { message: { markdown }, _meta: { 'innkeeper.refused': refusals } };
  }

  #undo(session, undone, target, operationId) {
    const names = [...new Set(undone.map((change) => change.uri.split('/').at(-1)))];
    const label = `${operationId === 'restore' ? 'Restore' : 'Undo'} ${names.length === 1 ? names[0] : `${names.length} files`}`;
    session.redo = { label, changes: session.changes };
    if (target?.kind !== 'range') {
      session.changes = session.changes.filter((change) => !undone.includes(change));
      return;
    }
    const { start, end } = target.range;
    session.changes = session.changes.map((change) => {
      if (!undone.includes(change)) return change;
      return { ...change, after: revertLines(change.before ?? '', change.after ?? '', start.line, end.line) };
    });
    session.changes = session.changes.filter((change) => change.before !== change.after);
  }

  #refusal(change) {
    if (change.notUndoable) return { uri: change.uri, reason: change.notUndoable, canForce: false };
    const preview = this.store(change.conflict, change.uri.split('/').at(-1));
    return { uri: change.uri, reason: 'later changes overlap with this one', preview, canForce: true };
  }

  #keep(session, target) {
    const files = target ? [target.resource] : session.changes.map((change) => change.uri);
    for (const file of files) session.kept.add(file);
    return { message: { markdown: `Kept the changes of ${fileWords(new Set(files).size)}.` } };
  }

  #redo(session) {
    session.changes = session.redo.changes;
    const { label } = session.redo;
    session.redo = undefined;
    return { message: { markdown: `Took back: ${label}.` } };
  }
}

/** The catalogue of a session. */
export function catalogue(uri) {
  const capabilities = { review: {} };
  return [
    { label: 'All Changes', uriTemplate: `${uri}/changeset/session`, changeKind: 'session', capabilities },
    { label: 'Uncommitted Changes', uriTemplate: `${uri}/changeset/uncommitted`, changeKind: 'uncommitted', capabilities },
    { label: 'Turn Changes', uriTemplate: `${uri}/changeset/turn/{turnId}`, changeKind: 'turn', capabilities },
  ];
}

/** The counts of a session. */
export function changeCounts(session) {
  const files = folded(session.changes ?? []);
  const documents = files
    .filter((change) => !change.unknown)
    .map((change) => diffDocument(change.before ?? undefined, change.after ?? undefined));
  return {
    files: files.length,
    additions: documents.reduce((sum, each) => sum + each.added, 0),
    deletions: documents.reduce((sum, each) => sum + each.removed, 0),
  };
}

/** The net changes, one for each file. */
function folded(changes) {
  const files = new Map();
  for (const change of changes) {
    const earlier = files.get(change.uri);
    files.set(change.uri, earlier ? { ...change, before: earlier.before, from: earlier.from } : change);
  }
  return [...files.values()].sort((one, other) => one.uri.localeCompare(other.uri));
}

function operations(session, kind) {
  const undo = { id: 'undo', label: 'Undo', scopes: ['changeset', 'resource', 'range'], status: 'idle' };
  const discard = { ...undo, label: 'Discard', scopes: ['changeset', 'resource'], confirmation: 'Discard uncommitted changes?' };
  const redo = { id: 'redo', label: session.redo ? `Redo: ${session.redo.label}` : 'Redo', scopes: ['changeset'] };
  const restore = { id: 'restore', label: 'Restore files to before this turn', scopes: ['changeset'], status: 'idle' };
  return [
    kind === 'uncommitted' ? discard : undo,
    { id: 'keep', label: 'Keep', scopes: ['changeset', 'resource'], status: 'idle' },
    { ...redo, status: session.redo ? 'idle' : 'disabled' },
    ...(kind === 'turn' ? [{ ...restore, confirmation: 'Restore the files to their state before this turn?' }] : []),
  ];
}

function fileWords(count) {
  return count === 1 ? '1 file' : `${count} files`;
}

function firstTurn(session, turnId) {
  return session.changes.findIndex((change) => change.turnId === turnId);
}

function resource(data) {
  return data === undefined ? undefined : { data, encoding: 'utf-8' };
}
