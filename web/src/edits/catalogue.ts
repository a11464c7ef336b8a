// Finds the changesets that a session and its chat offer.

import type { Changeset } from '../ahp/changeset-types';
import type { Uri } from '../ahp/types';

export interface OfferedChangeset {
  uri: Uri;
  kind: string;
  label: string;
  description: string;
  /** Whether files can be marked as reviewed. */
  reviewable: boolean;
}

type Catalogue = readonly Changeset[] | undefined;

/** The changeset of a turn; undefined if the host offers none. */
export function turnChangeset(session: Catalogue, chat: Catalogue, turnId: string): OfferedChangeset | undefined {
  const entry = entries(chat, session).find((each) => each.changeKind === 'turn' && each.uriTemplate.includes('{turnId}'));
  return entry && offered(entry, entry.uriTemplate.replace('{turnId}', encodeURIComponent(turnId)));
}

/** The changesets that do not depend on a turn, without duplicates: all changes of the session first. */
export function sessionChangesets(session: Catalogue, chat: Catalogue): OfferedChangeset[] {
  const found = new Map<string, OfferedChangeset>();
  for (const entry of entries(session, chat)) {
    const isFixed = !entry.uriTemplate.includes('{');
    if (isFixed && !found.has(entry.changeKind)) found.set(entry.changeKind, offered(entry, entry.uriTemplate));
  }
  return ['session', 'uncommitted'].flatMap((kind) => found.get(kind) ?? []);
}

function entries(...lists: Catalogue[]): Changeset[] {
  return lists
    .flatMap((list) => (Array.isArray(list) ? list : []))
    .filter((entry) => typeof entry?.uriTemplate === 'string' && typeof entry.changeKind === 'string');
}

function offered(entry: Changeset, uri: Uri): OfferedChangeset {
  return {
    uri,
    kind: entry.changeKind,
    label: entry.label,
    description: entry.description ?? '',
    reviewable: entry.capabilities?.review !== undefined,
  };
}
