// Sends messages: each is shown as being sent until the host has it, is sent again after a reconnect if the host does not
// have it, and is returned to the input box if the host refuses it.

import { batch } from '@preact/signals';

import type { Action, ChatState, Message, Uri } from '../ahp/types';
import { uuid } from '../identity';
import type { Verdict } from './confirmed';
import { JoinedMessages } from './joined-messages';
import { isInState, joined, type OutgoingMessage, OutgoingMessages, type SendKind, sendAction } from './outgoing';

export interface SendingOptions {
  dispatch(channel: Uri, action: Action): number | undefined;
  dispatchConfirmed(channel: Uri, action: Action): Promise<Verdict>;
  online(): boolean;
  /** The host's state of a chat. */
  chat(uri: Uri): ChatState | undefined;
  publish(): void;
  /** The host has accepted a message. */
  accepted(message: OutgoingMessage): void;
  /** A message was not sent: returns its text to the input box and says why. */
  giveBack(message: OutgoingMessage, why: string): void;
}

/** A dispatch is only answered by its echo, and the host ignores a dispatch to an unknown session. */
const ECHO_TIMEOUT_MS = 30_000;

export class Sending {
  readonly #options: SendingOptions;
  readonly #outgoing = new OutgoingMessages();
  /** The last steering message of each chat. The host has room for one, so the next one waits until the host has it. */
  readonly #steered = new Map<Uri, Promise<void>>();
  readonly #joined = new JoinedMessages();

  /** The messages that are being sent. */
  readonly list = this.#outgoing.list;

  constructor(options: SendingOptions) {
    this.#options = options;
  }

  /** Sends a message to the chat that `open` returns. */
  async send(session: Uri, message: Message, kind: SendKind, open: () => Promise<Uri>): Promise<void> {
    const outgoing: OutgoingMessage = { session, id: uuid(), kind, message };
    this.#outgoing.add(outgoing);
    try {
      const chat = await open();
      if (kind === 'steering') await this.#steer(outgoing, chat);
      else this.#dispatch(outgoing, chat);
    } catch (error) {
      const current = this.#outgoing.find(outgoing.id);
      if (current) this.#giveBack(current, `The message was not sent: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  /** Handles an echo; returns false if the dispatch was not a message. */
  echoed(clientSeq: number, rejection: string | undefined): boolean {
    const message = this.#outgoing.sentAs(clientSeq);
    if (!message) return false;
    if (rejection !== undefined) {
      this.#giveBack(message, `The host refused the message: ${rejection}`);
      return true;
    }
    // The echo is in the mirror already; the message must neither be shown twice nor disappear in between.
    batch(() => {
      this.#outgoing.replace(message.id, undefined);
      this.#options.accepted(message);
      this.#options.publish();
    });
    return true;
  }

  /** After a reconnect: sends the messages of the shown session again that the host does not have. */
  sendAgain(shown: Uri | undefined): void {
    for (const message of this.list.value) {
      if (!message.sent) continue;
      if (message.session !== shown) {
        this.#giveBack(message, 'The connection broke before the host confirmed a message; look before sending it again.');
      } else if (this.#options.online()) {
        this.#dispatch(message, message.sent.chat);
      }
    }
  }

  /** Called when the shown chat changes: the agent may have taken a message that was joined with a later one. */
  look(chat: ChatState | undefined): void {
    for (const action of this.#joined.corrections(chat)) if (chat) void this.#options.dispatchConfirmed(chat.resource, action);
  }

  removeOf(session: Uri): void {
    this.#outgoing.removeOf(session);
  }

  removePublished(): void {
    this.#outgoing.removePublished((uri) => this.#options.chat(uri));
  }

  /** A steering message that the agent has not taken yet becomes the beginning of the new one. */
  async #steer(outgoing: OutgoingMessage, chat: Uri): Promise<void> {
    const before = this.#steered.get(chat);
    const left = this.#outgoing.left(outgoing.id);
    this.#steered.set(chat, left);
    void left.then(() => this.#steered.get(chat) === left && this.#steered.delete(chat));
    await before;
    const waiting = this.#options.chat(chat)?.steeringMessage;
    if (!waiting) {
      this.#dispatch(outgoing, chat);
      return;
    }
    const verdict = await this.#options.dispatchConfirmed(chat, { type: 'chat/pendingMessageRemoved', kind: 'steering', id: waiting.id });
    const isGone = verdict.kind === 'lost' && !isInState(this.#options.chat(chat), 'steering', waiting.id);
    const removed = verdict.kind === 'accepted' || isGone;
    if (removed) this.#joined.add(chat, waiting, outgoing);
    const complete = removed ? { ...outgoing, message: joined(waiting, outgoing.message) } : outgoing;
    this.#outgoing.replace(outgoing.id, complete);
    if (verdict.kind === 'lost') throw new Error('the connection to the host was lost');
    this.#dispatch(complete, chat);
  }

  #dispatch(message: OutgoingMessage, chat: Uri): void {
    const clientSeq = this.#options.dispatch(chat, sendAction(message));
    if (clientSeq === undefined) throw new Error('not connected to the host');
    this.#outgoing.replace(message.id, { ...message, sent: { chat, clientSeq } });
    setTimeout(() => this.#echoOverdue(message.id, clientSeq), ECHO_TIMEOUT_MS);
  }

  #echoOverdue(id: string, clientSeq: number): void {
    const message = this.#outgoing.sentAs(clientSeq);
    // Without a connection the message waits: it is sent again after the reconnect if the host does not have it.
    if (message?.id !== id || !this.#options.online()) return;
    this.#giveBack(message, 'The host did not accept the message. It may no longer have this session.');
  }

  #giveBack(message: OutgoingMessage, why: string): void {
    this.#outgoing.replace(message.id, undefined);
    this.#options.giveBack(message, why);
  }
}
