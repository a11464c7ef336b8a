// Waiting messages, background work and the draft in the state of a chat.

import { expect, it } from 'vitest';

import { reduceChat } from '../../src/ahp/reducer';
import type { Action, ChatState } from '../../src/ahp/types';

const chat: ChatState = { resource: 'ahp-chat:/c', title: '', status: 1, modifiedAt: '2026-11-15T09:00:00.000Z', turns: [] };
const message = (text: string) => ({ text, origin: { kind: 'user' } });
const set = (kind: string, id: string, text = id): Action => ({ type: 'chat/pendingMessageSet', kind, id, message: message(text) });
const removed = (kind: string, id: string): Action => ({ type: 'chat/pendingMessageRemoved', kind, id });
const order = (...ids: unknown[]): Action => ({ type: 'chat/queuedMessagesReordered', order: ids });
const started = (queuedMessageId: string): Action => ({
  type: 'chat/turnStarted',
  turnId: 't',
  startedAt: '2026-11-15T09:00:05.000Z',
  message: message('x'),
  queuedMessageId,
});
const fold = (...actions: Action[]) => actions.reduce(reduceChat, chat);
const queued = (state: ChatState) => state.queuedMessages?.map((each) => each.message.text);

it('queues messages in order, and replaces one with the same id', () => {
  const state = fold(set('queued', 'a'), set('queued', 'b'), set('queued', 'a', 'changed'));
  expect(queued(state)).toEqual(['changed', 'b']);
  expect(state).not.toHaveProperty('steeringMessage');
});

it('has room for one steering message', () => {
  const state = fold(set('steering', 'a'), set('steering', 'b'));
  expect(state.steeringMessage).toEqual({ id: 'b', message: message('b') });
  expect(reduceChat(state, removed('steering', 'a'))).toBe(state);
  expect(reduceChat(state, removed('queued', 'b'))).toBe(state);
  expect(reduceChat(state, removed('steering', 'b'))).toEqual(chat);
});

it('has no queue after the last message is removed', () => {
  const state = fold(set('queued', 'a'), set('queued', 'b'), removed('queued', 'a'));
  expect(queued(state)).toEqual(['b']);
  expect(reduceChat(state, removed('queued', 'a'))).toBe(state);
  expect(reduceChat(state, removed('queued', 'b'))).toEqual(chat);
});

it('changes the order, without unknown ids and with the others at the end', () => {
  const state = fold(set('queued', 'a'), set('queued', 'b'), set('queued', 'c'), order('c', 'x', 'a', 'c'));
  expect(queued(state)).toEqual(['c', 'a', 'b']);
  expect(reduceChat(chat, order('a'))).toBe(chat);
  expect(reduceChat(state, { type: 'chat/queuedMessagesReordered' })).toBe(state);
});

it.each(['queued', 'steering'])('removes a %s message that has become a turn', (kind) => {
  const state = fold(set(kind, 'a'), set('queued', 'b'), started('a'));
  expect(state.steeringMessage).toBeUndefined();
  expect(queued(state)).toEqual(['b']);
  expect(state.activeTurn?.id).toBe('t');
});

it('lists background work until it is removed', () => {
  const work = { kind: 'shell', id: 'w', label: 'Server', startedAt: '2026-11-15T09:00:00.000Z', command: 'npm run dev' };
  const workSet = (changes: object): Action => ({ type: 'chat/backgroundWorkSet', work: { ...work, ...changes } });
  const state = fold(workSet({}), workSet({ id: 'v' }), workSet({ label: 'Renamed' }));
  expect(state.backgroundWork?.map((each) => each.label)).toEqual(['Renamed', 'Server']);
  const gone = reduceChat(state, { type: 'chat/backgroundWorkRemoved', id: 'w' });
  expect(gone.backgroundWork?.map((each) => each.id)).toEqual(['v']);
  expect(reduceChat(gone, { type: 'chat/backgroundWorkRemoved', id: 'w' })).toBe(gone);
  expect(reduceChat(gone, { type: 'chat/backgroundWorkRemoved', id: 'v' }).backgroundWork).toEqual([]);
  expect(reduceChat(chat, { type: 'chat/backgroundWorkSet' })).toBe(chat);
});

it('has the draft of the last client until it is cleared', () => {
  const state = reduceChat(chat, { type: 'chat/draftChanged', draft: message('half') });
  expect(state.draft?.text).toBe('half');
  expect(reduceChat(state, { type: 'chat/draftChanged' })).toEqual(chat);
});

it('ignores waiting messages of an unknown kind', () => {
  expect(reduceChat(chat, set('later', 'a'))).toBe(chat);
  expect(reduceChat(chat, removed('later', 'a'))).toBe(chat);
});
