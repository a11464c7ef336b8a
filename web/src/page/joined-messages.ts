// Steering messages that were removed to be joined with a later one. The host also confirms the removal of a message that
// the agent has already; then the later message must not repeat it.

import type { Action, ChatState, Message, PendingMessage, Uri } from '../ahp/types';
import { steeringOf } from '../host-metadata';
import { joined, NEWEST_PARTS, type OutgoingMessage } from './outgoing';

interface JoinedMessage {
  chat: Uri;
  /** The id of the message that contains the removed one. */
  id: string;
  /** That message without the removed one and what precedes it. */
  rest: Message;
}

export class JoinedMessages {
  /** By the id of the removed message. */
  readonly #byRemoved = new Map<string, JoinedMessage>();

  add(chat: Uri, removed: PendingMessage, { id, message }: OutgoingMessage): void {
    for (const [key, each] of this.#byRemoved) {
      if (each.id !== removed.id) continue;
      this.#byRemoved.set(key, { chat, id, rest: joined({ id: removed.id, message: each.rest }, message) });
    }
    this.#byRemoved.set(removed.id, { chat, id, rest: message });
  }

  /** The actions that remove what the agent has already from a waiting message. */
  corrections(chat: ChatState | undefined): Action[] {
    if (this.#byRemoved.size === 0) return [];
    const actions: Action[] = [];
    for (const part of chat?.activeTurn?.responseParts.slice(-NEWEST_PARTS) ?? []) {
      const taken = steeringOf(part)?.id ?? '';
      const found = this.#byRemoved.get(taken);
      // A message that is still being sent is corrected once the host has it.
      if (!found || chat?.steeringMessage?.id !== found.id) continue;
      this.#byRemoved.delete(taken);
      actions.push({ type: 'chat/pendingMessageSet', kind: 'steering', id: found.id, message: found.rest });
    }
    for (const [id, each] of this.#byRemoved) if (each.chat !== chat?.resource || !chat.activeTurn) this.#byRemoved.delete(id);
    return actions;
  }
}
