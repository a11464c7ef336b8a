// The part of a chat's state that is independent of its turns: waiting messages, background work and the shared draft.

import type { Action, BackgroundWork, ChatState, Message, PendingMessage } from './types';

/** Applies an action to that part; an action about something else returns the same object. */
export function reduceWaiting(state: ChatState, action: Action): ChatState {
  switch (action.type) {
    case 'chat/pendingMessageSet':
      return messageSet(state, action);
    case 'chat/pendingMessageRemoved':
      return messageRemoved(state, action);
    case 'chat/queuedMessagesReordered':
      return reordered(state, action['order']);
    case 'chat/backgroundWorkSet':
      return workSet(state, action['work'] as BackgroundWork | undefined);
    case 'chat/backgroundWorkRemoved':
      return workRemoved(state, action['id']);
    case 'chat/draftChanged':
      return draftChanged(state, action['draft'] as Message | null | undefined);
    default:
      return state;
  }
}

/** Removes the message that has become a turn. */
export function withoutStarted(state: ChatState, id: unknown): ChatState {
  if (typeof id !== 'string') return state;
  return withoutQueued(withoutSteering(state, id), id);
}

function messageSet(state: ChatState, action: Action): ChatState {
  const set: PendingMessage = { id: String(action['id']), message: action['message'] as Message };
  if (action['kind'] === 'steering') return { ...state, steeringMessage: set };
  if (action['kind'] !== 'queued') return state;
  return { ...state, queuedMessages: replaced(state.queuedMessages ?? [], set) };
}

function messageRemoved(state: ChatState, action: Action): ChatState {
  const id = String(action['id']);
  if (action['kind'] === 'steering') return withoutSteering(state, id);
  return action['kind'] === 'queued' ? withoutQueued(state, id) : state;
}

function withoutSteering(state: ChatState, id: string): ChatState {
  if (state.steeringMessage?.id !== id) return state;
  const { steeringMessage: _removed, ...rest } = state;
  return rest;
}

function withoutQueued(state: ChatState, id: string): ChatState {
  const queued = state.queuedMessages ?? [];
  const kept = queued.filter((each) => each.id !== id);
  if (kept.length === queued.length) return state;
  if (kept.length > 0) return { ...state, queuedMessages: kept };
  const { queuedMessages: _none, ...rest } = state;
  return rest;
}

/** Unknown ids are ignored; messages that are not named stay at the end. */
function reordered(state: ChatState, order: unknown): ChatState {
  if (!state.queuedMessages || !Array.isArray(order)) return state;
  const byId = new Map(state.queuedMessages.map((each) => [each.id, each]));
  const named = [...new Set(order)].flatMap((id) => byId.get(id) ?? []);
  const others = state.queuedMessages.filter((each) => !order.includes(each.id));
  return { ...state, queuedMessages: [...named, ...others] };
}

function workSet(state: ChatState, work: BackgroundWork | undefined): ChatState {
  if (typeof work?.id !== 'string') return state;
  return { ...state, backgroundWork: replaced(state.backgroundWork ?? [], work) };
}

function workRemoved(state: ChatState, id: unknown): ChatState {
  const kept = state.backgroundWork?.filter((each) => each.id !== id);
  return !kept || kept.length === state.backgroundWork?.length ? state : { ...state, backgroundWork: kept };
}

function draftChanged(state: ChatState, draft: Message | null | undefined): ChatState {
  if (draft) return { ...state, draft };
  const { draft: _removed, ...rest } = state;
  return rest;
}

function replaced<T extends { id: string }>(items: readonly T[], item: T): T[] {
  const index = items.findIndex((each) => each.id === item.id);
  return index < 0 ? [...items, item] : items.with(index, item);
}
