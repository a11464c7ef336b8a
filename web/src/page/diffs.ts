// Reads diffs from the host. A diff never changes, because its address contains the digests of both contents.

import type { Uri } from '../ahp/types';
import { type DiffDocument, parseDiff } from '../edits/diff-document';
import { type ResourceContent, resourceText } from '../resource-text';

/** The diffs that are kept. */
const KEPT_DIFFS = 24;

export class Diffs {
  readonly #read: (uri: Uri) => Promise<ResourceContent>;
  readonly #kept = new Map<Uri, Promise<DiffDocument>>();

  constructor(read: (uri: Uri) => Promise<ResourceContent>) {
    this.#read = read;
  }

  read(uri: Uri): Promise<DiffDocument> {
    const known = this.#kept.get(uri);
    if (known) return known;
    const reading = this.#load(uri);
    this.#kept.set(uri, reading);
    const [oldest] = this.#kept.keys();
    if (this.#kept.size > KEPT_DIFFS && oldest !== undefined) this.#kept.delete(oldest);
    // A failure may be temporary.
    reading.catch(() => this.#kept.delete(uri));
    return reading;
  }

  async #load(uri: Uri): Promise<DiffDocument> {
    const document = parseDiff(resourceText(await this.#read(uri)));
    if (!document) throw new Error('the host sent something else than a diff.');
    return document;
  }
}
