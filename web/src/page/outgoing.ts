// Messages that were typed here and are not part of a chat's state yet.

import { signal } from '@preact/signals';

import type { ChatState, Uri } from '../ahp/types';

export interface OutgoingMessage {
  session: Uri;
  turnId: string;
  text: string;
  /** The chat and the sequence number of the dispatch, once it was dispatched. */
  sent?: { chat: Uri; clientSeq: number };
}

export class OutgoingMessages {
  readonly list = signal<readonly OutgoingMessage[]>([]);

  add(message: OutgoingMessage): void {
    this.list.value = [...this.list.value, message];
  }

  /** Replaces the message of a turn, or removes it. */
  replace(turnId: string, next: OutgoingMessage | undefined): void {
    const others = this.list.value.filter((each) => each.turnId !== turnId);
    this.list.value = next ? [...others, next] : others;
  }

  /** The message that was dispatched with this sequence number. */
  sentAs(clientSeq: number): OutgoingMessage | undefined {
    return this.list.value.find((each) => each.sent?.clientSeq === clientSeq);
  }

  removeOf(session: Uri): void {
    this.list.value = this.list.value.filter((message) => message.session !== session);
  }

  /** Removes the messages that are in the state of their chat. */
  removePublished(chat: (uri: Uri) => ChatState | undefined): void {
    const waiting = this.list.value.filter((message) => !isInState(chat(message.sent?.chat ?? ''), message));
    if (waiting.length !== this.list.value.length) this.list.value = waiting;
  }
}

function isInState(chat: ChatState | undefined, message: OutgoingMessage): boolean {
  if (!chat) return false;
  return chat.activeTurn?.id === message.turnId || chat.turns.some((turn) => turn.id === message.turnId);
}
