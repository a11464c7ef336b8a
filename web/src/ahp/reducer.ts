// Applies an action to the state of its channel. Pure: an action that is unknown,
// late or malformed returns the same object.

import type { Changeset } from './changeset-types';
import { isOpenRequest, reduceRequests } from './input-requests';
import { reduceToolCall, skipped } from './tool-calls';
import {
  type Action,
  type ActiveClient,
  type ActiveTurn,
  type AgentInfo,
  type ChatState,
  type ChatSummary,
  type ErrorInfo,
  type ErrorPart,
  type Message,
  type ResponsePart,
  type RootState,
  type SessionState,
  Status,
  type Turn,
  type Uri,
  type Usage,
} from './types';
import { reduceWaiting, withoutStarted } from './waiting';

export function reduceRoot(state: RootState, action: Action): RootState {
  switch (action.type) {
    case 'root/agentsChanged':
      return { ...state, agents: list<AgentInfo>(action['agents']) };
    case 'root/activeSessionsChanged':
      return { ...state, activeSessions: Number(action['activeSessions']) };
    default:
      return state;
  }
}

export function reduceSession(state: SessionState, action: Action): SessionState {
  switch (action.type) {
    case 'session/ready':
      return { ...state, lifecycle: 'ready' };
    case 'session/creationFailed':
      return { ...state, lifecycle: 'failed', creationError: action['error'] as ErrorInfo };
    case 'session/titleChanged':
      return { ...state, title: String(action['title']) };
    case 'session/activityChanged':
      return withOptional(state, 'activity', action['activity'] as string | undefined);
    case 'session/chatAdded':
      return withChat(state, action['summary'] as ChatSummary);
    case 'session/chatRemoved':
      return withoutChat(state, action['chat'] as Uri);
    case 'session/chatUpdated':
      return withChatChanges(state, action['chat'] as Uri, action['changes'] as Partial<ChatSummary>);
    case 'session/defaultChatChanged':
      return withOptional(state, 'defaultChat', action['defaultChat'] as Uri | undefined);
    case 'session/configChanged':
      return withConfig(state, action);
    case 'session/changesetsChanged':
      return withOptional(state, 'changesets', action['changesets'] as Changeset[] | undefined);
    case 'session/metaChanged':
      return withOptional(state, '_meta', action['_meta'] as Record<string, unknown> | undefined);
    case 'session/activeClientSet':
      return withClient(state, action['activeClient'] as ActiveClient);
    case 'session/activeClientRemoved':
      return { ...state, activeClients: list<ActiveClient>(state.activeClients).filter((each) => each.clientId !== action['clientId']) };
    case 'session/isReadChanged':
      return { ...state, status: withFlag(state.status, Status.IsRead, action['isRead'] === true) };
    case 'session/isArchivedChanged':
      return { ...state, status: withFlag(state.status, Status.IsArchived, action['isArchived'] === true) };
    default:
      return state;
  }
}

export function reduceChat(state: ChatState, action: Action): ChatState {
  switch (action.type) {
    case 'chat/turnStarted':
      return turnStarted(state, action);
    case 'chat/responsePart':
      return inActiveTurn(state, action, (turn) => appendPart(turn, action['part'] as ResponsePart));
    case 'chat/delta':
      return appendText(state, action, 'markdown');
    case 'chat/reasoning':
      return appendText(state, action, 'reasoning');
    case 'chat/usage':
      return inActiveTurn(state, action, (turn) => ({ ...turn, usage: action['usage'] as Usage }));
    case 'chat/turnComplete':
      return endTurn(state, action, 'complete');
    case 'chat/turnCancelled':
      return endTurn(state, action, 'cancelled');
    case 'chat/error':
      return endTurn(state, action, 'error');
    case 'chat/turnResume':
      return turnResumed(state, action);
    case 'chat/activityChanged':
      return withOptional(state, 'activity', action['activity'] as string | undefined);
    case 'chat/changesetsChanged':
      return withOptional(state, 'changesets', action['changesets'] as Changeset[] | undefined);
    case 'chat/inputRequested':
      return inputRequested(state, action);
    case 'chat/inputAnswerChanged':
    case 'chat/inputCompleted':
      return requestChanged(state, action);
    case 'chat/truncated':
      return truncated(state, action['turnId'] as string | undefined);
    case 'chat/turnsLoaded':
      return turnsLoaded(state, action);
    case 'chat/isReadChanged':
      return { ...state, status: withFlag(state.status, Status.IsRead, action['isRead'] === true) };
    case 'chat/isArchivedChanged':
      return { ...state, status: withFlag(state.status, Status.IsArchived, action['isArchived'] === true) };
    default:
      return action.type.startsWith('chat/toolCall') ? toolCallChanged(state, action) : reduceWaiting(state, action);
  }
}

function turnStarted(state: ChatState, action: Action): ChatState {
  const startedAt = String(action['startedAt']);
  const activeTurn: ActiveTurn = {
    id: String(action['turnId']),
    startedAt,
    message: action['message'] as Message,
    responseParts: [],
  };
  const rest = withoutStarted(state, action['queuedMessageId']);
  return unread(withActivity({ ...rest, activeTurn, modifiedAt: startedAt }));
}

function endTurn(state: ChatState, action: Action, outcome: string): ChatState {
  const active = state.activeTurn;
  if (!active || active.id !== action['turnId']) return state;
  const duration = Math.max(0, Number(action['duration']) || 0);
  const responseParts = active.responseParts.map(skipOpenToolCall);
  if (outcome === 'error' && action['part']) responseParts.push(action['part'] as ErrorPart);
  const { activeTurn: _ended, ...rest } = state;
  const turn: Turn = { ...active, duration, responseParts, state: outcome };
  const ended = withActivity({ ...rest, turns: [...state.turns, turn], modifiedAt: later(active.startedAt, duration) });
  return outcome === 'error' ? { ...ended, status: (ended.status & ~Status.ActivityMask) | Status.Error } : ended;
}

/** An ended turn has no open tool calls: unfinished ones become skipped. */
function skipOpenToolCall(part: ResponsePart): ResponsePart {
  if (part.kind !== 'toolCall' || !part.toolCall) return part;
  const { status } = part.toolCall;
  if (status === 'completed' || status === 'cancelled') return part;
  return { ...part, toolCall: skipped(part.toolCall) };
}

function turnResumed(state: ChatState, action: Action): ChatState {
  const last = state.turns.at(-1);
  const lastPart = last?.responseParts.at(-1);
  if (state.activeTurn || !last || last.id !== action['turnId'] || last.state !== 'error') return state;
  if (lastPart?.kind !== 'error' || lastPart.resumable !== true) return state;
  const { state: _outcome, duration: _duration, ...kept } = last;
  const activeTurn: ActiveTurn = { ...kept, startedAt: last.startedAt ?? state.modifiedAt };
  return unread(withActivity({ ...state, turns: state.turns.slice(0, -1), activeTurn }));
}

function appendPart(turn: ActiveTurn, part: ResponsePart | undefined): ActiveTurn {
  // An error part only ever arrives with `chat/error`, which ends the turn.
  if (!part || part.kind === 'error') return turn;
  return { ...turn, responseParts: [...turn.responseParts, part] };
}

function appendText(state: ChatState, action: Action, kind: 'markdown' | 'reasoning'): ChatState {
  return inActiveTurn(state, action, (turn) => {
    // Text nearly always belongs to the newest part, so the search starts at the end.
    const index = turn.responseParts.findLastIndex((part) => 'id' in part && part.id === action['partId']);
    const part = turn.responseParts[index];
    if (!part || part.kind !== kind) return turn;
    return replacePart(turn, index, { ...part, content: part.content + String(action['content'] ?? '') });
  });
}

function toolCallChanged(state: ChatState, action: Action): ChatState {
  const changed = inActiveTurn(state, action, (turn) => {
    const index = turn.responseParts.findLastIndex(
      (part) => part.kind === 'toolCall' && part.toolCall?.toolCallId === action['toolCallId'],
    );
    const part = turn.responseParts[index];
    const before = part?.kind === 'toolCall' ? part.toolCall : undefined;
    const after = reduceToolCall(before, action);
    if (!after || after === before) return turn;
    const next: ResponsePart = { kind: 'toolCall', toolCall: after };
    return before ? replacePart(turn, index, next) : { ...turn, responseParts: [...turn.responseParts, next] };
  });
  return changed === state ? state : withActivity(changed);
}

function inputRequested(state: ChatState, action: Action): ChatState {
  const changed = requestChanged(state, action);
  return changed === state ? state : unread(changed);
}

function requestChanged(state: ChatState, action: Action): ChatState {
  const activeTurn = state.activeTurn && reduceRequests(state.activeTurn, action);
  return !activeTurn || activeTurn === state.activeTurn ? state : withActivity({ ...state, activeTurn });
}

function truncated(state: ChatState, turnId: string | undefined): ChatState {
  const { activeTurn: _dropped, ...rest } = state;
  if (turnId === undefined) {
    const { turnsNextCursor: _cursor, ...all } = rest;
    return withActivity({ ...all, turns: [] });
  }
  const index = state.turns.findIndex((turn) => turn.id === turnId);
  return index < 0 ? state : withActivity({ ...rest, turns: state.turns.slice(0, index + 1) });
}

function turnsLoaded(state: ChatState, action: Action): ChatState {
  const known = new Set(state.turns.map((turn) => turn.id));
  const older = list<Turn>(action['turns']).filter((turn) => !known.has(turn.id));
  const loaded = { ...state, turns: [...older, ...state.turns] };
  return withOptional(loaded, 'turnsNextCursor', action['turnsNextCursor'] as string | undefined);
}

/** Changes the active turn, if the action is about that turn; a late action for another turn has no effect. */
function inActiveTurn(state: ChatState, action: Action, change: (turn: ActiveTurn) => ActiveTurn): ChatState {
  const turn = state.activeTurn;
  if (!turn || turn.id !== action['turnId']) return state;
  const next = change(turn);
  return next === turn ? state : { ...state, activeTurn: next };
}

function replacePart(turn: ActiveTurn, index: number, part: ResponsePart): ActiveTurn {
  return { ...turn, responseParts: turn.responseParts.with(index, part) };
}

/** Derives the activity bits of a chat from what its active turn waits for. */
function withActivity(state: ChatState): ChatState {
  const waits = state.activeTurn?.responseParts.some(awaitsUser) ?? false;
  const activity = waits ? Status.InputNeeded : state.activeTurn ? Status.InProgress : Status.Idle;
  return { ...state, status: (state.status & ~Status.ActivityMask) | activity };
}

function awaitsUser(part: ResponsePart): boolean {
  if (isOpenRequest(part)) return true;
  if (part.kind !== 'toolCall') return false;
  return ['pending-confirmation', 'pending-result-confirmation', 'auth-required'].includes(part.toolCall?.status);
}

function withChat(state: SessionState, summary: ChatSummary): SessionState {
  const index = state.chats.findIndex((chat) => chat.resource === summary.resource);
  return { ...state, chats: index < 0 ? [...state.chats, summary] : state.chats.with(index, summary) };
}

function withoutChat(state: SessionState, chat: Uri): SessionState {
  const chats = state.chats.filter((each) => each.resource !== chat);
  if (chats.length === state.chats.length) return state;
  return state.defaultChat === chat ? withOptional({ ...state, chats }, 'defaultChat', undefined) : { ...state, chats };
}

function withChatChanges(state: SessionState, chat: Uri, changes: Partial<ChatSummary>): SessionState {
  const index = state.chats.findIndex((each) => each.resource === chat);
  const known = state.chats[index];
  return known ? { ...state, chats: state.chats.with(index, { ...known, ...changes }) } : state;
}

/** Sets the given values, or all of them. A session without a configuration does not get one. */
function withConfig(state: SessionState, action: Action): SessionState {
  const { config } = state;
  const changed = action['config'];
  if (!config || typeof changed !== 'object' || changed === null) return state;
  const kept = action['replace'] === true ? {} : config.values;
  return { ...state, config: { ...config, values: { ...kept, ...changed } } };
}

function withClient(state: SessionState, client: ActiveClient): SessionState {
  const clients = list<ActiveClient>(state.activeClients);
  const index = clients.findIndex((each) => each.clientId === client.clientId);
  return { ...state, activeClients: index < 0 ? [...clients, client] : clients.with(index, client) };
}

function unread(state: ChatState): ChatState {
  return { ...state, status: withFlag(state.status, Status.IsRead, false) };
}

function withFlag(status: number, flag: number, on: boolean): number {
  return on ? status | flag : status & ~flag;
}

/** Sets an optional field, or removes it if the value is absent or null. */
function withOptional<S extends object, K extends keyof S>(state: S, key: K, value: S[K] | undefined): S {
  const next = { ...state };
  if (value === undefined || value === null) delete next[key];
  else next[key] = value;
  return next;
}

function later(timestamp: string, milliseconds: number): string {
  const end = new Date(Date.parse(timestamp) + milliseconds);
  // A date beyond the range of dates has no ISO form, and the turn must end nevertheless.
  return Number.isNaN(end.getTime()) ? timestamp : end.toISOString();
}

function list<T>(value: unknown): T[] {
  return Array.isArray(value) ? (value as T[]) : [];
}
