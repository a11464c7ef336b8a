// The waiting messages of the shown chat: the queue, and the message that steers the running turn. They belong to all
// clients. The host has a message until it is confirmed to be elsewhere, so that no text is lost.

import { type ReadonlySignal, signal } from '@preact/signals';

import type { Action, ActionEnvelope, ChatState, Message, PendingKind, PendingMessage, Uri } from '../ahp/types';
import { steeringOf } from '../host-metadata';
import type { Verdict } from './confirmed';
import { hasStarted, isInState, NEWEST_PARTS } from './outgoing';

export interface WaitingMessagesOptions {
  dispatch(channel: Uri, action: Action): Promise<Verdict>;
  /** The shown chat. */
  chat(): ChatState | undefined;
  /** The shown session. */
  session(): Uri | undefined;
  /** The host's state of a chat; undefined if the chat is not subscribed. */
  stateOf(chat: Uri): ChatState | undefined;
  /** Returns text to the input box of a session, with the attachments of the message if it no longer waits. */
  giveBack(session: Uri | undefined, text: string, taken?: Message): void;
  /** Removes text from the input box of a session if it is still there unchanged. */
  takeAgain(session: Uri | undefined, text: string): void;
  steer(session: Uri | undefined, message: Message): void;
  notice(text: string): void;
}

/** The messages whose client is remembered. */
const OWNERS_REMEMBERED = 300;

const LEFT_WHILE_EDITED = 'The message left the queue while you edited it. Your text is in the message box.';

/** A queued message that is being edited here. */
export interface EditedMessage {
  chat: Uri;
  id: string;
  text: string;
}

/** The owner of the messages that were sent here. */
export const HERE = '';

export class WaitingMessages {
  readonly #options: WaitingMessagesOptions;
  readonly #owners = signal<ReadonlyMap<string, string>>(new Map());
  /** Steering messages that were taken back here, by their id. */
  readonly #takenBack = new Map<string, { chat: Uri; session: Uri | undefined; text: string }>();

  /** The ids of the clients that sent or edited a message while this page was connected, by the message's id. */
  readonly owners: ReadonlySignal<ReadonlyMap<string, string>> = this.#owners;
  readonly edited = signal<EditedMessage | undefined>(undefined);

  constructor(options: WaitingMessagesOptions) {
    this.#options = options;
  }

  /** Remembers which client a waiting message is from. */
  setElsewhere({ action, origin }: ActionEnvelope): void {
    if (action.type !== 'chat/pendingMessageSet' || !origin) return;
    this.#own(String(action['id']), origin.clientId);
  }

  /** Remembers that a waiting message is from here. */
  setHere(id: string): void {
    this.#own(id, HERE);
  }

  async remove(kind: PendingKind, id: string): Promise<void> {
    const verdict = await this.#dispatch({ type: 'chat/pendingMessageRemoved', kind, id });
    this.#explain(verdict, 'The message was not removed');
  }

  /** Removes a waiting message and returns its text to the input box. */
  async takeBack(kind: PendingKind, { id, message }: PendingMessage): Promise<void> {
    // The user may select another session before the host answers.
    const session = this.#options.session();
    const chat = this.#options.chat()?.resource;
    const verdict = await this.#dispatch({ type: 'chat/pendingMessageRemoved', kind, id });
    if (!this.#isRemoved(verdict, chat, kind, id)) {
      this.#explain(verdict, 'The message was not taken back');
      return;
    }
    if (kind === 'steering' && chat !== undefined) this.#takenBack.set(id, { chat, session, text: message.text });
    this.#options.giveBack(session, message.text, message);
  }

  /** Changes the text of a queued message. */
  async edit({ id, message }: PendingMessage, text: string): Promise<void> {
    this.edited.value = undefined;
    const session = this.#options.session();
    const chat = this.#options.chat()?.resource;
    const verdict = await this.#dispatch({ type: 'chat/pendingMessageSet', kind: 'queued', id, message: { ...message, text } });
    if (verdict.kind === 'accepted') {
      this.setHere(id);
      if (chat !== undefined && hasStarted(this.#options.stateOf(chat), id)) await this.#undoLateEdit(chat, session, id, text);
      return;
    }
    this.#options.giveBack(session, text);
    this.#explain(verdict, 'The message was not changed; your text is in the message box');
  }

  /** The message became a turn before the host got the edit, which the host then queued as a new message. */
  async #undoLateEdit(chat: Uri, session: Uri | undefined, id: string, text: string): Promise<void> {
    const verdict = await this.#options.dispatch(chat, { type: 'chat/pendingMessageRemoved', kind: 'queued', id });
    if (verdict.kind !== 'accepted') return;
    this.#options.giveBack(session, text);
    this.#options.notice(LEFT_WHILE_EDITED);
  }

  /** Changes the order of the queue, which also continues a queue that is held. */
  async order(ids: readonly string[]): Promise<void> {
    const verdict = await this.#dispatch({ type: 'chat/queuedMessagesReordered', order: ids });
    this.#explain(verdict, 'The order was not changed');
  }

  /** Continues a queue that is held after a stop or an error, in this order. */
  async continue(ids: readonly string[]): Promise<void> {
    const steering = this.#options.chat()?.steeringMessage;
    const order = { type: 'chat/queuedMessagesReordered', order: ids };
    const again = steering && { type: 'chat/pendingMessageSet', kind: 'steering', ...steering };
    if (again && ids.length > 0) void this.#dispatch(again);
    this.#explain(await this.#dispatch(ids.length > 0 || !again ? order : again), 'The queue was not continued');
  }

  /**
   * Sends a queued message now: stops the running turn, and continues the queue with this message at its head. The
   * message stays in the queue until its turn starts.
   */
  async sendNow(id: string): Promise<void> {
    const chat = this.#options.chat();
    if (!chat) return;
    const others = (chat.queuedMessages ?? []).map((each) => each.id).filter((each) => each !== id);
    // A steering message that was not taken is moved to the queue by the stop.
    const steering = chat.steeringMessage ? [chat.steeringMessage.id] : [];
    const order = { type: 'chat/queuedMessagesReordered', order: [id, ...steering, ...others] };
    const first = this.#dispatch(order);
    if (chat.activeTurn) {
      // A refusal means that the turn has ended by itself. Then the message is the next one.
      void this.#dispatch(stopAction(chat.activeTurn.id, chat.activeTurn.startedAt));
      void this.#dispatch(order);
    }
    this.#explain(await first, 'The message was not sent');
  }

  /** Moves a queued message into the running turn. */
  async steerWith({ id, message }: PendingMessage): Promise<void> {
    const session = this.#options.session();
    const chat = this.#options.chat()?.resource;
    const verdict = await this.#dispatch({ type: 'chat/pendingMessageRemoved', kind: 'queued', id });
    if (verdict.kind === 'accepted') {
      this.#options.steer(session, message);
      return;
    }
    const isRemoved = this.#isRemoved(verdict, chat, 'queued', id);
    if (isRemoved) this.#options.giveBack(session, message.text, message);
    this.#explain(verdict, isRemoved ? 'The message was not moved; it is in the message box' : 'The message was not moved');
  }

  /** Called when the shown chat changes: an edit or a take-back may have been too late. */
  look(chat: ChatState | undefined): void {
    this.#lookForEdited(chat);
    this.#lookForTakenBack(chat);
  }

  /** A message can be sent while it is edited. The edited text is kept. */
  #lookForEdited(chat: ChatState | undefined): void {
    const edited = this.edited.value;
    if (!edited || edited.chat !== chat?.resource || chat.queuedMessages?.some((each) => each.id === edited.id)) return;
    this.edited.value = undefined;
    this.#options.giveBack(this.#options.session(), edited.text);
    this.#options.notice(LEFT_WHILE_EDITED);
  }

  /** The agent may have had a message already that was taken back. */
  #lookForTakenBack(chat: ChatState | undefined): void {
    if (this.#takenBack.size === 0) return;
    for (const part of chat?.activeTurn?.responseParts.slice(-NEWEST_PARTS) ?? []) {
      const id = steeringOf(part)?.id ?? '';
      const taken = this.#takenBack.get(id);
      if (!taken) continue;
      this.#takenBack.delete(id);
      this.#options.takeAgain(taken.session, taken.text);
      this.#options.notice('The agent had the message already: it is part of the turn.');
    }
    for (const [id, taken] of this.#takenBack) if (taken.chat !== chat?.resource || !chat.activeTurn) this.#takenBack.delete(id);
  }

  /** Whether a message no longer waits. A removal whose confirmation was lost may have been applied. */
  #isRemoved(verdict: Verdict, chat: Uri | undefined, kind: PendingKind, id: string): boolean {
    if (verdict.kind !== 'lost' || chat === undefined) return verdict.kind === 'accepted';
    return !isInState(this.#options.stateOf(chat), kind, id);
  }

  #own(id: string, owner: string): void {
    const others = [...this.#owners.value].filter(([each]) => each !== id);
    this.#owners.value = new Map([...others.slice(1 - OWNERS_REMEMBERED), [id, owner]]);
  }

  #dispatch(action: Action): Promise<Verdict> {
    const chat = this.#options.chat();
    return chat ? this.#options.dispatch(chat.resource, action) : Promise.resolve({ kind: 'lost' });
  }

  #explain(verdict: Verdict, what: string): void {
    if (verdict.kind === 'refused') this.#options.notice(`${what}: ${verdict.reason}`);
    else if (verdict.kind === 'lost') this.#options.notice(`${what}: the host did not confirm it.`);
  }
}

/** The action that stops a turn. */
export function stopAction(turnId: string, startedAt: string): Action {
  const started = Date.parse(startedAt);
  return { type: 'chat/turnCancelled', turnId, duration: Number.isNaN(started) ? 0 : Math.max(0, Date.now() - started) };
}
