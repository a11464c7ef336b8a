// Shares the unsent text of the shown session with the host, which stores it and can start the agent in advance. The
// stored text is shown after a reload. Text that was typed here is never replaced by another client's.

import type { Action, ChatState, Uri } from '../ahp/types';

/** How long typing pauses before the text is shared. The first character is shared at once. */
const PAUSE_MS = 400;
/** Longer text is not shared. */
const SHARED_CHARACTERS = 100_000;

interface ShownDraft {
  session: Uri;
  chat: Uri;
  /** The text that the host has from here. */
  shared: string;
  typed: string;
  /** The host's text that is in the input box unchanged. */
  adopted: string | undefined;
}

export interface DraftSharingOptions {
  dispatch(channel: Uri, action: Action): number | undefined;
  /** Puts the host's text into the input box of a session. */
  adopt(session: Uri, text: string): void;
}

export class DraftSharing {
  readonly #options: DraftSharingOptions;
  /** The chats of the drafts that the host has not confirmed, by sequence number. */
  readonly #dispatched = new Map<number, Uri>();
  #shown: ShownDraft | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: DraftSharingOptions) {
    this.#options = options;
  }

  /** The text in the input box of a session changed. */
  typed(session: Uri, text: string): void {
    const shown = this.#shown;
    if (shown?.session !== session) return;
    shown.typed = text;
    if (text !== shown.adopted) shown.adopted = undefined;
    clearTimeout(this.#timer);
    const startsOrEnds = (text === '') !== (shown.shared === '');
    if (startsOrEnds) this.#share();
    else this.#timer = setTimeout(() => this.#share(), PAUSE_MS);
  }

  /** Called whenever the shown chat changes; `typed` is the text in its input box. */
  show(session: Uri | undefined, chat: ChatState | undefined, typed: string): void {
    if (session === undefined || !chat) return;
    const text = draftText(chat);
    const shown = this.#shown;
    if (shown?.session !== session || shown.chat !== chat.resource) {
      this.leave();
      this.#shown = { session, chat: chat.resource, shared: text, typed, adopted: undefined };
      if (typed !== '') this.typed(session, typed);
      else if (text !== '') this.#adopt(this.#shown, text);
    } else if (shown.adopted !== undefined && shown.adopted !== text) {
      // Another client changed or sent the text, and it was not edited here.
      this.#adopt(shown, text);
    }
  }

  #adopt(shown: ShownDraft, text: string): void {
    shown.shared = text;
    shown.typed = text;
    shown.adopted = text === '' ? undefined : text;
    this.#options.adopt(shown.session, text);
  }

  /** Shares the text of the session that is no longer shown. */
  leave(): void {
    clearTimeout(this.#timer);
    this.#share();
    this.#shown = undefined;
  }

  /** Shares text that was typed while the connection was lost, or that was lost with it. */
  reconnected(chat: ChatState | undefined): void {
    const shown = this.#shown;
    if (shown && chat?.resource === shown.chat && [...this.#dispatched.values()].includes(shown.chat)) shown.shared = draftText(chat);
    this.#dispatched.clear();
    this.#share();
  }

  /** Handles an echo; returns false if the dispatch was not a draft. Rejections are ignored. */
  echoed(clientSeq: number): boolean {
    return this.#dispatched.delete(clientSeq);
  }

  #share(): void {
    const shown = this.#shown;
    if (!shown || shown.typed === shown.shared || shown.typed.length > SHARED_CHARACTERS) return;
    const draft = { text: shown.typed, origin: { kind: 'user' } };
    const clientSeq = this.#options.dispatch(shown.chat, { type: 'chat/draftChanged', ...(shown.typed === '' ? {} : { draft }) });
    if (clientSeq === undefined) return;
    this.#dispatched.set(clientSeq, shown.chat);
    shown.shared = shown.typed;
  }
}

function draftText(chat: ChatState): string {
  return typeof chat.draft?.text === 'string' ? chat.draft.text : '';
}
