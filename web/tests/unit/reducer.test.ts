import { describe, expect, it } from 'vitest';

import { reduceChat, reduceRoot, reduceSession } from '../../src/ahp/reducer';
import { type Action, type ChatState, type SessionState, Status } from '../../src/ahp/types';

const START = '2026-11-15T09:00:05.000Z';
const hello = { text: 'hello', origin: { kind: 'user' } };
const emptyChat: ChatState = {
  resource: 'ahp-chat:/c',
  title: '',
  status: Status.Idle | Status.IsRead,
  modifiedAt: '2026-11-15T09:00:00.000Z',
  turns: [],
};
const started: Action = { type: 'chat/turnStarted', turnId: 't1', startedAt: START, message: hello };

function fold(actions: Action[], from: ChatState = emptyChat): ChatState {
  return actions.reduce(reduceChat, from);
}

function on(type: string, fields: object = {}): Action {
  return { type, turnId: 't1', ...fields };
}

describe('a turn', () => {
  it('streams text and thinking into their own parts and ends idle with its usage', () => {
    const chat = fold([
      started,
      on('chat/responsePart', { part: { kind: 'reasoning', id: 'r', content: 'Let ' } }),
      on('chat/reasoning', { partId: 'r', content: 'me see' }),
      on('chat/responsePart', { part: { kind: 'markdown', id: 'm', content: '' } }),
      on('chat/delta', { partId: 'm', content: 'Good ' }),
      on('chat/delta', { partId: 'm', content: 'evening' }),
      on('chat/usage', { usage: { inputTokens: 3, outputTokens: 2 } }),
      on('chat/turnComplete', { duration: 1500 }),
    ]);
    expect(chat).toEqual({
      ...emptyChat,
      status: Status.Idle,
      modifiedAt: '2026-11-15T09:00:06.500Z',
      turns: [
        {
          id: 't1',
          startedAt: START,
          duration: 1500,
          message: hello,
          responseParts: [
            { kind: 'reasoning', id: 'r', content: 'Let me see' },
            { kind: 'markdown', id: 'm', content: 'Good evening' },
          ],
          usage: { inputTokens: 3, outputTokens: 2 },
          state: 'complete',
        },
      ],
    });
  });

  it.each([1e300, -1, 'long', null])('ends with a duration of %s', (duration) => {
    const chat = fold([started, on('chat/turnComplete', { duration })]);
    expect(chat.turns).toHaveLength(1);
    expect(chat.activeTurn).toBeUndefined();
  });

  it('ends with parts that lack their content', () => {
    const parts = [{ kind: 'toolCall' }, { kind: 'inputRequest' }].map((part) => on('chat/responsePart', { part }));
    const chat = fold([started, ...parts, on('chat/inputCompleted', { requestId: 'r' }), on('chat/turnComplete', { duration: 1 })]);
    expect(chat.turns).toHaveLength(1);
  });

  it('is in progress and unread while it runs', () => {
    expect(fold([started]).status).toBe(Status.InProgress);
  });

  it('keeps its error part and the error status when it fails', () => {
    const part = { kind: 'error', error: { errorType: 'api_error', message: 'Overloaded' }, resumable: true };
    const failed = fold([started, on('chat/error', { duration: 10, part })]);
    expect(failed.status).toBe(Status.Error);
    expect(failed.turns[0]).toMatchObject({ state: 'error', responseParts: [part] });

    const resumed = fold([{ type: 'chat/turnResume', turnId: 't1' }], failed);
    expect(resumed.turns).toEqual([]);
    expect(resumed.activeTurn).toEqual({ id: 't1', startedAt: START, message: hello, responseParts: [part] });
  });

  it('ignores what is late, for another turn, for an unknown part, or unknown altogether', () => {
    const running = fold([started, on('chat/responsePart', { part: { kind: 'markdown', id: 'm', content: 'x' } })]);
    const ignored: Action[] = [
      { type: 'chat/delta', turnId: 'other', partId: 'm', content: '!' },
      on('chat/delta', { partId: 'unknown', content: '!' }),
      on('chat/reasoning', { partId: 'm', content: '!' }),
      on('chat/responsePart', { part: { kind: 'error', error: { errorType: 'e', message: 'm' } } }),
      { type: 'chat/turnComplete', turnId: 'other', duration: 1 },
      on('chat/toolCallReady', { toolCallId: 'unknown', invocationMessage: '' }),
      { type: 'chat/somethingNew', turnId: 't1' },
      { type: 'terminal/data', data: 'x' },
    ];
    for (const action of ignored) expect(reduceChat(running, action), action.type).toBe(running);
  });

  it('drops the turns after a truncation, and the active one', () => {
    const two = fold([
      started,
      on('chat/turnComplete', { duration: 1 }),
      { ...started, turnId: 't2' },
      { type: 'chat/turnCancelled', turnId: 't2', duration: 1 },
      { ...started, turnId: 't3' },
    ]);
    expect(two.turns.map((turn) => turn.state)).toEqual(['complete', 'cancelled']);
    const cut = fold([{ type: 'chat/truncated', turnId: 't1' }], two);
    expect(cut.turns.map((turn) => turn.id)).toEqual(['t1']);
    expect(cut.activeTurn).toBeUndefined();
    expect(cut.status).toBe(Status.Idle);
    expect(fold([{ type: 'chat/truncated' }], two).turns).toEqual([]);
  });

  it('puts older turns in front, each once', () => {
    const chat = fold([started, on('chat/turnComplete', { duration: 1 })]);
    const older = { id: 't0', message: hello, responseParts: [], state: 'complete' };
    const loaded = fold([{ type: 'chat/turnsLoaded', turns: [older, chat.turns[0]], turnsNextCursor: 'c' }], chat);
    expect(loaded.turns.map((turn) => turn.id)).toEqual(['t0', 't1']);
    expect(loaded.turnsNextCursor).toBe('c');
    expect(fold([{ type: 'chat/turnsLoaded', turns: [] }], loaded)).not.toHaveProperty('turnsNextCursor');
  });
});

describe('a tool call', () => {
  const start = on('chat/toolCallStart', { toolCallId: 'k', toolName: 'bash', displayName: 'Run command' });
  const asked = on('chat/toolCallReady', {
    toolCallId: 'k',
    invocationMessage: 'Run `ls`',
    toolInput: 'ls',
    confirmationTitle: 'Run it?',
    options: [{ id: 'once', label: 'Allow', kind: 'approve' }],
  });
  const call = (chat: ChatState) => {
    const part = (chat.activeTurn ?? chat.turns.at(-1))?.responseParts.at(-1);
    return part?.kind === 'toolCall' ? part.toolCall : undefined;
  };
  const base = { toolCallId: 'k', toolName: 'bash', displayName: 'Run command' };

  it('streams its input, runs, changes content and completes', () => {
    const streaming = fold([
      started,
      start,
      on('chat/toolCallDelta', { toolCallId: 'k', content: '{"a"' }),
      on('chat/toolCallDelta', { toolCallId: 'k', content: ':1}', invocationMessage: 'Running' }),
    ]);
    expect(call(streaming)).toEqual({ ...base, status: 'streaming', partialInput: '{"a":1}', invocationMessage: 'Running' });

    const running = fold(
      [
        on('chat/toolCallReady', { toolCallId: 'k', invocationMessage: 'Run', toolInput: '{"a":1}', confirmed: 'not-needed' }),
        on('chat/toolCallContentChanged', { toolCallId: 'k', content: [{ type: 'text', text: 'half' }] }),
      ],
      streaming,
    );
    expect(call(running)).toEqual({
      ...base,
      status: 'running',
      invocationMessage: 'Run',
      toolInput: '{"a":1}',
      confirmed: 'not-needed',
      content: [{ type: 'text', text: 'half' }],
    });

    const result = { success: false, pastTenseMessage: 'Failed', content: [{ type: 'text', text: 'all' }], error: { message: 'no' } };
    const done = fold([on('chat/toolCallComplete', { toolCallId: 'k', result })], running);
    expect(call(done)).toEqual({
      ...base,
      ...result,
      status: 'completed',
      invocationMessage: 'Run',
      toolInput: '{"a":1}',
      confirmed: 'not-needed',
    });
  });

  it('waits for a decision, and runs with the edited input', () => {
    const waiting = fold([started, start, asked]);
    expect(waiting.status).toBe(Status.InputNeeded);
    expect(call(waiting)?.status).toBe('pending-confirmation');
    const approve = { toolCallId: 'k', approved: true, confirmed: 'user-action', selectedOptionId: 'once', editedToolInput: 'ls -l' };
    const running = fold([on('chat/toolCallConfirmed', approve)], waiting);
    expect(running.status).toBe(Status.InProgress);
    expect(call(running)).toEqual({
      ...base,
      status: 'running',
      invocationMessage: 'Run `ls`',
      toolInput: 'ls -l',
      confirmed: 'user-action',
      selectedOption: { id: 'once', label: 'Allow', kind: 'approve' },
    });
  });

  it('is cancelled when denied, and skipped when the turn ends first', () => {
    const denied = fold([started, start, asked, on('chat/toolCallConfirmed', { toolCallId: 'k', approved: false })]);
    expect(call(denied)).toEqual({ ...base, status: 'cancelled', reason: 'denied', invocationMessage: 'Run `ls`', toolInput: 'ls' });
    const skipped = fold([started, start, asked, on('chat/turnCancelled', { duration: 5 })]);
    expect(call(skipped)).toEqual({ ...base, status: 'cancelled', reason: 'skipped', invocationMessage: 'Run `ls`', toolInput: 'ls' });
    expect(skipped.status).toBe(Status.Idle);
  });

  it('cannot complete while its input still streams, nor change after its end', () => {
    const result = { success: true, pastTenseMessage: 'Ran' };
    const complete = on('chat/toolCallComplete', { toolCallId: 'k', result });
    const streaming = fold([started, start]);
    expect(reduceChat(streaming, complete)).toBe(streaming);
    const done = fold([asked, complete], streaming);
    expect(call(done)?.status).toBe('completed');
    expect(reduceChat(done, on('chat/toolCallConfirmed', { toolCallId: 'k', approved: true }))).toBe(done);
  });
});

describe('a question to the user', () => {
  it('needs input until it is answered', () => {
    const request = { id: 'q', message: 'Which one?', answers: { a: 1 } };
    const asked = fold([started, { type: 'chat/inputRequested', request }]);
    expect(asked.status).toBe(Status.InputNeeded);
    const answered = fold([{ type: 'chat/inputCompleted', requestId: 'q', response: 'accept', answers: { b: 2 } }], asked);
    expect(answered.status).toBe(Status.InProgress);
    expect(answered.activeTurn?.responseParts).toEqual([
      { kind: 'inputRequest', request: { ...request, answers: { a: 1, b: 2 } }, response: 'accept' },
    ]);
  });

  it('has drafts that can be set, replaced and removed until it is completed', () => {
    const change = (questionId: string, answer?: unknown) => ({ type: 'chat/inputAnswerChanged', requestId: 'q', questionId, answer });
    const requestOf = (chat: ChatState) => chat.activeTurn?.responseParts[0];
    const asked = fold([started, { type: 'chat/inputRequested', request: { id: 'q' } }]);
    const drafted = fold([change('a', 1), change('__proto__', 2), change('a', 3)], asked);
    expect(drafted.status).toBe(Status.InputNeeded);
    expect(JSON.stringify(requestOf(drafted))).toBe('{"kind":"inputRequest","request":{"id":"q","answers":{"__proto__":2,"a":3}}}');
    expect(fold([change('a'), change('__proto__')], drafted)).toEqual(asked);
    const cancelled = fold([{ type: 'chat/inputCompleted', requestId: 'q', response: 'cancel' }], asked);
    expect(requestOf(cancelled)).toEqual({ kind: 'inputRequest', request: { id: 'q' }, response: 'cancel' });
    expect(fold([change('a', 1)], cancelled)).toBe(cancelled);
  });

  it('keeps its drafts when it is asked again with the same id', () => {
    const ask = (message: string): Action => ({ type: 'chat/inputRequested', request: { id: 'q', message } });
    const draft = { type: 'chat/inputAnswerChanged', requestId: 'q', questionId: 'a', answer: 1 };
    expect(fold([started, ask('One?'), draft, ask('Two?')]).activeTurn?.responseParts).toEqual([
      { kind: 'inputRequest', request: { id: 'q', message: 'Two?', answers: { a: 1 } } },
    ]);
  });
});

describe('a session', () => {
  const chat = { resource: 'ahp-chat:/c', title: '', status: 1 };
  const session: SessionState = {
    provider: 'claude',
    title: '',
    status: 1,
    lifecycle: 'creating',
    chats: [chat],
    defaultChat: chat.resource,
  };

  it('becomes ready, gets a title and an activity, and loses the activity again', () => {
    const actions: Action[] = [
      { type: 'session/ready' },
      { type: 'session/titleChanged', title: 'List files' },
      { type: 'session/activityChanged', activity: 'Reading' },
    ];
    const state = actions.reduce(reduceSession, session);
    expect(state).toEqual({ ...session, lifecycle: 'ready', title: 'List files', activity: 'Reading' });
    expect(reduceSession(state, { type: 'session/activityChanged' })).not.toHaveProperty('activity');
  });

  it('says why it could not be created', () => {
    const error = { errorType: 'spawn', message: 'No runtime is installed' };
    expect(reduceSession(session, { type: 'session/creationFailed', error })).toEqual({
      ...session,
      lifecycle: 'failed',
      creationError: error,
    });
  });

  it('merges changed settings, or replaces all of them', () => {
    const config = { schema: { properties: {} }, values: { permissionMode: 'default', other: 1 } };
    const changed: Action = { type: 'session/configChanged', config: { permissionMode: 'plan' } };
    const configured: SessionState = { ...session, config };
    expect(reduceSession(configured, changed).config?.values).toEqual({ permissionMode: 'plan', other: 1 });
    expect(reduceSession(configured, { ...changed, replace: true }).config?.values).toEqual({ permissionMode: 'plan' });
    expect(reduceSession(session, changed)).toBe(session);
    expect(reduceSession(configured, { type: 'session/configChanged' })).toBe(configured);
  });

  it('replaces its metadata as a whole', () => {
    const meta = (_meta?: object): Action => ({ type: 'session/metaChanged', _meta });
    const state = [meta({ a: 1 }), meta({ b: 2 })].reduce(reduceSession, session);
    expect(state._meta).toEqual({ b: 2 });
    expect(reduceSession(state, meta())).not.toHaveProperty('_meta');
  });

  it('knows its clients by id', () => {
    const set = (clientId: string, displayName: string): Action => ({
      type: 'session/activeClientSet',
      activeClient: { clientId, displayName },
    });
    const state = [set('a', 'One'), set('b', 'Two'), set('a', 'Three')].reduce(reduceSession, session);
    expect(state.activeClients?.map((each) => each.displayName)).toEqual(['Three', 'Two']);
    expect(reduceSession(state, { type: 'session/activeClientRemoved', clientId: 'a' }).activeClients).toHaveLength(1);
  });

  it('merges chat changes, and ignores a chat that it does not have', () => {
    const changed = reduceSession(session, { type: 'session/chatUpdated', chat: chat.resource, changes: { status: 8 } });
    expect(changed.chats).toEqual([{ ...chat, status: 8 }]);
    expect(reduceSession(session, { type: 'session/chatUpdated', chat: 'ahp-chat:/x', changes: {} })).toBe(session);
    const removed = reduceSession(session, { type: 'session/chatRemoved', chat: chat.resource });
    expect(removed.chats).toEqual([]);
    expect(removed).not.toHaveProperty('defaultChat');
  });
});

it('takes over the agents of the root', () => {
  const agents = [{ provider: 'claude', displayName: 'Claude', description: '', models: [] }];
  expect(reduceRoot({ agents: [] }, { type: 'root/agentsChanged', agents })).toEqual({ agents });
});
