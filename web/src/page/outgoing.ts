// Messages that were typed here and are not part of a chat's state yet.

import { signal } from '@preact/signals';

import type { Action, ChatState, Message, PendingKind, PendingMessage, Uri } from '../ahp/types';
import { steeringOf } from '../host-metadata';

/** How many of the newest parts are searched for a message that was taken back too late. */
export const NEWEST_PARTS = 20;

/** Where a message goes: it starts a turn, or waits as one of the pending kinds. */
export type SendKind = 'turn' | PendingKind;

export interface OutgoingMessage {
  session: Uri;
  /** The id of the turn or of the waiting message. */
  id: string;
  kind: SendKind;
  message: Message;
  /** The chat and the sequence number of the dispatch, once it was dispatched. */
  sent?: { chat: Uri; clientSeq: number };
}

export class OutgoingMessages {
  readonly list = signal<readonly OutgoingMessage[]>([]);
  readonly #left = new Map<string, () => void>();

  add(message: OutgoingMessage): void {
    this.#set([...this.list.value, message]);
  }

  find(id: string): OutgoingMessage | undefined {
    return this.list.value.find((each) => each.id === id);
  }

  /** Replaces the message with this id, or removes it. */
  replace(id: string, next: OutgoingMessage | undefined): void {
    this.#set(this.list.value.flatMap((each) => (each.id === id ? (next ?? []) : each)));
  }

  /** The message that was dispatched with this sequence number. */
  sentAs(clientSeq: number): OutgoingMessage | undefined {
    return this.list.value.find((each) => each.sent?.clientSeq === clientSeq);
  }

  removeOf(session: Uri): void {
    this.#set(this.list.value.filter((message) => message.session !== session));
  }

  /** Removes the messages that are in the state of their chat. */
  removePublished(chat: (uri: Uri) => ChatState | undefined): void {
    if (this.list.value.length === 0) return;
    this.#set(this.list.value.filter(({ sent, kind, id }) => !sent || !isInState(chat(sent.chat), kind, id)));
  }

  /** Resolves when the message is no longer in the list. */
  left(id: string): Promise<void> {
    return new Promise((resolve) => (this.find(id) ? this.#left.set(id, resolve) : resolve()));
  }

  #set(list: readonly OutgoingMessage[]): void {
    const isChanged = list.length !== this.list.value.length || list.some((each, index) => each !== this.list.value[index]);
    if (!isChanged) return;
    this.list.value = list;
    for (const [id, resolve] of this.#left) {
      if (list.some((each) => each.id === id)) continue;
      this.#left.delete(id);
      resolve();
    }
  }
}

/** The action that sends a message. */
export function sendAction({ kind, id, message }: OutgoingMessage): Action {
  if (kind === 'turn') return { type: 'chat/turnStarted', turnId: id, startedAt: new Date().toISOString(), message };
  return { type: 'chat/pendingMessageSet', kind, id, message };
}

/** Whether a chat has this message: as a turn, as a waiting message, or as a part that the agent has taken. */
export function isInState(chat: ChatState | undefined, kind: SendKind, id: string): boolean {
  if (!chat) return false;
  const turns = chat.activeTurn ? [...chat.turns, chat.activeTurn] : chat.turns;
  if (kind === 'turn') return turns.some((turn) => turn.id === id);
  if (isWaiting(chat, id) || hasStarted(chat, id)) return true;
  return turns.some((turn) => turn.responseParts.some((part) => steeringOf(part)?.id === id));
}

/** Whether a waiting message has become a turn. The host derives the id of the turn from that of the message. */
export function hasStarted(chat: ChatState | undefined, id: string): boolean {
  const isOf = (turn: { id: string } | undefined) => turn?.id.startsWith(`${id}-`) ?? false;
  return isOf(chat?.activeTurn) || (chat?.turns.some(isOf) ?? false);
}

function isWaiting(chat: ChatState, id: string): boolean {
  return chat.steeringMessage?.id === id || (chat.queuedMessages?.some((each) => each.id === id) ?? false);
}

/** A waiting message followed by another one, as one message. */
export function joined(first: PendingMessage, second: Message): Message {
  const attachments = [...(first.message.attachments ?? []), ...(second.attachments ?? [])];
  return {
    ...second,
    text: `${first.message.text}\n\n${second.text}`,
    ...(attachments.length > 0 ? { attachments } : {}),
  };
}
