// Files that go with the next message of a session: images, and text files. They are not a part of the stored draft.

import { signal } from '@preact/signals';

import type { EmbeddedAttachment, Message, Uri } from '../ahp/types';
import { oneLine } from '../format';
import { uuid } from '../identity';
import { NEW } from './drafts';

/** The host accepts images of at most this size. */
const MAX_BYTES = 5 * 1024 * 1024;
/** Longer text would fill a third of a model's context. */
const MAX_TEXT_BYTES = 256 * 1024;
const IMAGE = /^image\/(png|jpeg|gif|webp)$/;
/** The bytes that are encoded at once, a multiple of 3. */
const ENCODED_BYTES = 3 * 8192;

export interface Attached {
  id: string;
  bytes: number;
  attachment: EmbeddedAttachment;
}

export class Attachments {
  readonly #bySession = signal<ReadonlyMap<Uri, readonly Attached[]>>(new Map());
  readonly #notice: (text: string) => void;
  /** How many files are being read. */
  readonly reading = signal(0);

  constructor(notice: (text: string) => void) {
    this.#notice = notice;
  }

  of(session: Uri | undefined): readonly Attached[] {
    return this.#bySession.value.get(session ?? NEW) ?? [];
  }

  /** Attaches files to the next message of a session; a notice names those that cannot be attached. */
  async add(session: Uri | undefined, files: readonly File[]): Promise<void> {
    this.reading.value += files.length;
    for (const file of files) {
      const name = oneLine(file.name) || 'file';
      try {
        const problem = await this.#read(session, file, name);
        if (problem !== undefined) this.#notice(`${name} was not attached: ${problem}.`);
      } catch {
        this.#notice(`${name} was not attached: it could not be read.`);
      } finally {
        this.reading.value -= 1;
      }
    }
  }

  remove(session: Uri | undefined, id: string): void {
    this.#set(
      session,
      this.of(session).filter((each) => each.id !== id),
    );
  }

  /** Takes the attachments of a session into a message. */
  take(session: Uri | undefined, message: Message): Message {
    const attached = this.of(session);
    if (attached.length === 0) return message;
    this.#set(session, []);
    return { ...message, attachments: attached.map((each) => each.attachment) };
  }

  /** Attaches the files of a message that was not sent again. */
  giveBack(session: Uri | undefined, message: Message): void {
    const returned = (message.attachments ?? []).filter(isEmbedded).map((attachment) => {
      return { id: uuid(), bytes: Math.floor((attachment.data.length / 4) * 3), attachment };
    });
    if (returned.length > 0) this.#set(session, [...returned, ...this.of(session)]);
  }

  forget(session: Uri): void {
    this.#set(session, []);
  }

  /** Returns why the file cannot be attached, or undefined. */
  async #read(session: Uri | undefined, file: File, name: string): Promise<string | undefined> {
    const tooLarge = 'the attachments of a message can have at most 5 MB';
    const isTooLarge = () => this.of(session).reduce((sum, each) => sum + each.bytes, file.size) > MAX_BYTES;
    if (isTooLarge()) return tooLarge;
    const bytes = new Uint8Array(await file.arrayBuffer());
    const isImage = IMAGE.test(file.type);
    if (!isImage && !isText(bytes)) return 'only text and PNG, JPEG, GIF or WebP images can be attached';
    if (!isImage && bytes.length > MAX_TEXT_BYTES) return 'text can have at most 256 KB';
    // Another file can have been added meanwhile.
    if (isTooLarge()) return tooLarge;
    const contentType = isImage || file.type.startsWith('text/') ? file.type : 'text/plain';
    const attachment: EmbeddedAttachment = { type: 'embeddedResource', label: name, contentType, data: base64(bytes) };
    this.#set(session, [...this.of(session), { id: uuid(), bytes: bytes.length, attachment }]);
    return undefined;
  }

  #set(session: Uri | undefined, attached: readonly Attached[]): void {
    const bySession = new Map(this.#bySession.value);
    if (attached.length > 0) bySession.set(session ?? NEW, attached);
    else bySession.delete(session ?? NEW);
    this.#bySession.value = bySession;
  }
}

/** The names of a message's attachments. */
export function attachmentNames(message: Message | undefined): string[] {
  const attachments: unknown[] = Array.isArray(message?.attachments) ? message.attachments : [];
  return attachments.map((each) => oneLine((each as { label?: unknown } | null)?.label) || 'attachment');
}

function isEmbedded(value: unknown): value is EmbeddedAttachment {
  const { type, data, label } = (value ?? {}) as Partial<EmbeddedAttachment>;
  return type === 'embeddedResource' && typeof data === 'string' && typeof label === 'string';
}

function isText(bytes: Uint8Array): boolean {
  if (bytes.includes(0)) return false;
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}

function base64(bytes: Uint8Array): string {
  let encoded = '';
  for (let start = 0; start < bytes.length; start += ENCODED_BYTES) {
    encoded += btoa(String.fromCharCode(...bytes.subarray(start, start + ENCODED_BYTES)));
  }
  return encoded;
}
