// Shares the unsent text of the shown session and its chosen model with the host, which stores them and can start the agent
// in advance. They are shown after a reload. What was typed or chosen here is never replaced by another client's draft.

import type { Action, ChatState, ModelSelection, Uri } from '../ahp/types';
import { asSelection, isSameModel } from '../model-setting';

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
  /** The model that the host has from here. */
  sharedModel: ModelSelection | undefined;
  /** The host's model that is the choice here unchanged. */
  adoptedModel: ModelSelection | undefined;
}

export interface DraftSharingOptions {
  dispatch(channel: Uri, action: Action): number | undefined;
  /** Puts the host's text into the input box of a session. */
  adopt(session: Uri, text: string): void;
  /** The model that is chosen for the next message of a session. */
  model(session: Uri): ModelSelection | undefined;
  /** Makes the host's model the choice for a session. */
  adoptModel(session: Uri, model: ModelSelection | undefined): void;
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

  /** The chosen model of a session changed. */
  chosen(session: Uri): void {
    const shown = this.#shown;
    if (shown?.session !== session) return;
    shown.adoptedModel = undefined;
    this.#share();
  }

  /** Called whenever the shown chat changes; `typed` is the text in its input box. */
  show(session: Uri | undefined, chat: ChatState | undefined, typed: string): void {
    if (session === undefined || !chat) return;
    const text = draftText(chat);
    const model = asSelection(chat.draft?.model);
    const shown = this.#shown;
    if (shown?.session !== session || shown.chat !== chat.resource) {
      this.leave();
      const own = { adopted: undefined, adoptedModel: undefined };
      this.#shown = { session, chat: chat.resource, shared: text, typed, sharedModel: model, ...own };
      if (model && !this.#options.model(session)) this.#adoptModel(this.#shown, model);
      if (typed !== '') this.typed(session, typed);
      else if (text !== '') this.#adopt(this.#shown, text);
      return;
    }
    // Another client changed or sent the draft, and it was not changed here.
    if (shown.adoptedModel && !isSameModel(shown.adoptedModel, model)) this.#adoptModel(shown, model);
    if (shown.adopted !== undefined && shown.adopted !== text) this.#adopt(shown, text);
  }

  #adoptModel(shown: ShownDraft, model: ModelSelection | undefined): void {
    shown.sharedModel = model;
    shown.adoptedModel = model;
    this.#options.adoptModel(shown.session, model);
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
    if (shown && chat?.resource === shown.chat && [...this.#dispatched.values()].includes(shown.chat)) {
      shown.shared = draftText(chat);
      shown.sharedModel = asSelection(chat.draft?.model);
    }
    this.#dispatched.clear();
    this.#share();
  }

  /** Handles an echo; returns false if the dispatch was not a draft. Rejections are ignored. */
  echoed(clientSeq: number): boolean {
    return this.#dispatched.delete(clientSeq);
  }

  #share(): void {
    const shown = this.#shown;
    if (!shown || (shown.typed === shown.shared && this.#hasModel(shown)) || shown.typed.length > SHARED_CHARACTERS) return;
    const model = this.#options.model(shown.session);
    const draft = { text: shown.typed, origin: { kind: 'user' }, ...(model ? { model } : {}) };
    const isEmpty = shown.typed === '' && !model;
    const clientSeq = this.#options.dispatch(shown.chat, { type: 'chat/draftChanged', ...(isEmpty ? {} : { draft }) });
    if (clientSeq === undefined) return;
    this.#dispatched.set(clientSeq, shown.chat);
    shown.shared = shown.typed;
    shown.sharedModel = model;
  }

  /** Whether the host has the model that is chosen here. */
  #hasModel(shown: ShownDraft): boolean {
    return isSameModel(this.#options.model(shown.session), shown.sharedModel);
  }
}

function draftText(chat: ChatState): string {
  return typeof chat.draft?.text === 'string' ? chat.draft.text : '';
}
