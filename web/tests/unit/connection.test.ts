import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Connection, type ConnectionStatus } from '../../src/ahp/connection';
import type { SocketLike } from '../../src/ahp/rpc';
import { type Action, type InitializeResult, ROOT } from '../../src/ahp/types';

class ScriptedSocket implements SocketLike {
  onopen: ((event: any) => void) | null = null;
  onmessage: ((event: any) => void) | null = null;
  onclose: ((event: any) => void) | null = null;
  onerror: ((event: any) => void) | null = null;
  sent: any[] = [];
  closed = false;

  send(data: string): void {
    this.sent.push(JSON.parse(data));
  }
  close(): void {
    this.closed = true;
  }
  /** What the host sends. */
  frame(message: object | string): void {
    this.onmessage?.({ data: typeof message === 'string' ? message : JSON.stringify({ jsonrpc: '2.0', ...message }) });
  }
  last(method: string): any {
    return this.sent.findLast((message) => message.method === method);
  }
  answer(method: string, result: unknown): void {
    this.frame({ id: this.last(method).id, result });
  }
  refuse(method: string, code: number, message = 'no'): void {
    this.frame({ id: this.last(method).id, error: { code, message } });
  }
  action(serverSeq: number, channel: string, action: Action, extra: object = {}): void {
    this.frame({ method: 'action', params: { channel, action, serverSeq, ...extra } });
  }
}

const ROOT_SNAPSHOT = { resource: ROOT, state: { agents: [] }, fromSeq: 40 };
const CHAT = 'ahp-chat:/c';
const CHAT_STATE = { resource: CHAT, title: '', status: 1, modifiedAt: '', turns: [] };
const START = { type: 'chat/turnStarted', turnId: 't', startedAt: '2026-01-01T00:00:00.000Z', message: {} };

function connect(probe: () => Promise<boolean> = () => Promise.resolve(false)) {
  const sockets: ScriptedSocket[] = [];
  const seen = {
    statuses: [] as ConnectionStatus[],
    ready: [] as (InitializeResult | undefined)[],
    lost: [] as string[],
    echoes: [] as [number, string | undefined][],
    others: [] as (string | undefined)[],
    notifications: [] as string[],
  };
  const connection = new Connection({
    clientId: 'me',
    probe,
    openSocket: () => {
      const socket = new ScriptedSocket();
      sockets.push(socket);
      return socket;
    },
    events: {
      onStatus: (status) => seen.statuses.push(status),
      onReady: (host) => seen.ready.push(host),
      onChange: () => {},
      onLost: (channel) => seen.lost.push(channel),
      onEcho: (clientSeq, reason) => seen.echoes.push([clientSeq, reason]),
      onOthersAction: ({ origin }) => seen.others.push(origin?.clientId),
      onNotification: (method) => seen.notifications.push(method),
    },
  });
  connection.start();
  const socket = () => sockets.at(-1)!;
  const goOnline = async () => {
    socket().onopen?.({});
    socket().answer('initialize', { protocolVersion: '1.0.0', serverSeq: 40, snapshots: [ROOT_SNAPSHOT] });
    await vi.advanceTimersByTimeAsync(0);
  };
  const subscribe = async (state: object = CHAT_STATE, fromSeq = 40) => {
    const done = connection.subscribe(CHAT);
    socket().answer('subscribe', { snapshot: { resource: CHAT, state, fromSeq } });
    await done;
  };
  return { connection, sockets, socket, seen, goOnline, subscribe };
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.spyOn(console, 'warn').mockImplementation(() => {});
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

describe('the handshake', () => {
  it('offers both versions, a stable id and the root subscription', async () => {
    const { socket, seen, goOnline, connection } = connect();
    await goOnline();
    expect(socket().sent[0]).toEqual({
      jsonrpc: '2.0',
      id: 1,
      method: 'initialize',
      params: {
        channel: ROOT,
        protocolVersions: ['1.0.0', '0.9.0'],
        clientId: 'me',
        clientInfo: { name: 'innkeeper-page' },
        initialSubscriptions: [ROOT],
      },
    });
    expect(seen.statuses.map((status) => status.kind)).toEqual(['connecting', 'online']);
    expect(seen.ready[0]?.serverSeq).toBe(40);
    expect(connection.mirror.root()).toEqual({ agents: [] });
  });

  it('stops for good when the versions do not fit', async () => {
    const { socket, sockets, seen } = connect();
    socket().onopen?.({});
    socket().refuse('initialize', -32005, 'Supported: 2.0.0');
    await vi.advanceTimersByTimeAsync(60_000);
    expect(seen.statuses.at(-1)).toEqual({ kind: 'incompatible', message: 'Supported: 2.0.0' });
    expect(sockets).toHaveLength(1);
  });

  it('gives up on a host that accepts the socket and then stays silent', async () => {
    const { socket, sockets, seen } = connect();
    socket().onopen?.({});
    await vi.advanceTimersByTimeAsync(10_000);
    expect(sockets[0]?.closed).toBe(true);
    expect(seen.statuses.at(-1)?.kind).toBe('waiting');
  });
});

describe('a channel', () => {
  it('is the snapshot plus every action above its number, each once', async () => {
    const { connection, socket, goOnline, subscribe } = connect();
    await goOnline();
    await subscribe(CHAT_STATE, 50);
    socket().action(50, CHAT, { ...START, turnId: 'contained' });
    expect(connection.mirror.chat(CHAT)?.activeTurn).toBeUndefined();
    socket().action(52, CHAT, START);
    socket().action(53, CHAT, { type: 'chat/responsePart', turnId: 't', part: { kind: 'markdown', id: 'p', content: '' } });
    const delta = { type: 'chat/delta', turnId: 't', partId: 'p', content: 'once' };
    socket().action(54, CHAT, delta);
    socket().action(54, CHAT, delta);
    expect(connection.mirror.chat(CHAT)?.activeTurn?.responseParts).toEqual([{ kind: 'markdown', id: 'p', content: 'once' }]);
  });

  it('has its snapshot before an action that arrives in the same breath', async () => {
    const { connection, socket, goOnline } = connect();
    await goOnline();
    const done = connection.subscribe(CHAT);
    socket().answer('subscribe', { snapshot: { resource: CHAT, state: CHAT_STATE, fromSeq: 40 } });
    socket().action(41, CHAT, START);
    await done;
    expect(connection.mirror.chat(CHAT)?.activeTurn?.id).toBe('t');
  });

  it('is not changed by a rejected action, whose reason reaches its sender', async () => {
    const { connection, socket, seen, goOnline, subscribe } = connect();
    await goOnline();
    await subscribe();
    const clientSeq = connection.dispatch(CHAT, START)!;
    expect(socket().last('dispatchAction').params).toEqual({ channel: CHAT, clientSeq, action: START });
    socket().action(41, CHAT, START, { origin: { clientId: 'me', clientSeq }, rejectionReason: 'busy' });
    socket().action(42, CHAT, START, { origin: { clientId: 'other', clientSeq }, rejectionReason: 'busy' });
    expect(connection.mirror.chat(CHAT)?.activeTurn).toBeUndefined();
    expect(seen.echoes).toEqual([[clientSeq, 'busy']]);
    socket().action(43, CHAT, START, { origin: { clientId: 'other', clientSeq } });
    expect(seen.others).toEqual(['other']);
  });

  it('survives malformed frames, unknown actions and requests that the page cannot serve', async () => {
    const { connection, socket, seen, goOnline, subscribe } = connect();
    await goOnline();
    await subscribe();
    const before = connection.mirror.chat(CHAT);
    socket().frame('{"half');
    socket().frame('null');
    socket().frame({ id: 99, result: 'unrequested' });
    socket().frame({ method: 'action', params: { channel: CHAT, serverSeq: 41 } });
    socket().action(42, CHAT, { type: 'chat/unheardOf' });
    socket().action(43, CHAT, { type: 'session/chatAdded' });
    socket().frame({ method: 'future/notification', params: {} });
    socket().frame({ id: 7, method: 'resourceRead', params: { uri: 'file:///etc/passwd' } });
    expect(connection.mirror.chat(CHAT)).toBe(before);
    expect(seen.notifications).toEqual(['future/notification']);
    expect(socket().sent.at(-1)).toMatchObject({ id: 7, error: { code: -32601 } });
    expect(connection.online).toBe(true);
  });
});

describe('after a break', () => {
  it('resumes with what it saw last, applies the replay and drops what is gone', async () => {
    const { connection, socket, seen, goOnline, subscribe } = connect();
    await goOnline();
    await subscribe();
    socket().action(47, CHAT, START);
    socket().onclose?.({});
    expect(seen.statuses.at(-1)?.kind).toBe('waiting');
    expect(connection.mirror.chat(CHAT)?.activeTurn?.id).toBe('t');

    await vi.advanceTimersByTimeAsync(250);
    socket().onopen?.({});
    expect(socket().sent[0]).toMatchObject({
      method: 'reconnect',
      params: { channel: ROOT, clientId: 'me', lastSeenServerSeq: 47, subscriptions: [ROOT, CHAT] },
    });
    const end = { channel: CHAT, serverSeq: 48, action: { type: 'chat/turnComplete', turnId: 't', duration: 1 } };
    socket().answer('reconnect', { type: 'replay', actions: [end], missing: [ROOT] });
    await vi.advanceTimersByTimeAsync(0);
    expect(connection.mirror.chat(CHAT)?.turns).toHaveLength(1);
    expect(seen.lost).toEqual([ROOT]);
    expect(seen.ready).toEqual([expect.anything(), undefined]);
  });

  it('takes snapshots in place of what it had', async () => {
    const { connection, socket, seen, goOnline, subscribe } = connect();
    await goOnline();
    await subscribe();
    socket().onclose?.({});
    await vi.advanceTimersByTimeAsync(250);
    socket().onopen?.({});
    const state = { ...CHAT_STATE, title: 'newer' };
    socket().answer('reconnect', { type: 'snapshot', snapshots: [{ resource: CHAT, state, fromSeq: 90 }] });
    await vi.advanceTimersByTimeAsync(0);
    expect(connection.mirror.chat(CHAT)?.title).toBe('newer');
    expect(seen.lost).toEqual([ROOT]);
    socket().action(90, CHAT, START);
    expect(connection.mirror.chat(CHAT)?.activeTurn).toBeUndefined();
  });

  it('starts afresh with the same subscriptions when the host forgot it, even with lower numbers', async () => {
    const { connection, socket, seen, goOnline, subscribe } = connect();
    await goOnline();
    await subscribe();
    socket().action(500, CHAT, START);
    socket().onclose?.({});
    await vi.advanceTimersByTimeAsync(250);
    socket().onopen?.({});
    socket().refuse('reconnect', -32008);
    await vi.advanceTimersByTimeAsync(0);
    expect(socket().last('initialize').params).toMatchObject({ clientId: 'me', initialSubscriptions: [ROOT, CHAT] });
    socket().answer('initialize', {
      protocolVersion: '1.0.0',
      serverSeq: 3,
      snapshots: [{ ...ROOT_SNAPSHOT, fromSeq: 3 }],
    });
    await vi.advanceTimersByTimeAsync(0);
    expect(seen.lost).toEqual([CHAT]);
    expect(connection.mirror.chat(CHAT)).toBeUndefined();
    socket().onclose?.({});
    await vi.advanceTimersByTimeAsync(250);
    socket().onopen?.({});
    expect(socket().last('reconnect').params.lastSeenServerSeq).toBe(3);
  });

  it('fails open requests and keeps its numbers rising', async () => {
    const { connection, socket, goOnline } = connect();
    await goOnline();
    const first = connection.dispatch(CHAT, START)!;
    const open = connection.request('listSessions', { channel: ROOT });
    const outcome = expect(open).rejects.toThrow('lost');
    socket().onclose?.({});
    await outcome;
    expect(connection.dispatch(CHAT, START)).toBeUndefined();
    await vi.advanceTimersByTimeAsync(250);
    socket().onopen?.({});
    socket().answer('reconnect', { type: 'replay', actions: [], missing: [] });
    await vi.advanceTimersByTimeAsync(0);
    expect(connection.dispatch(CHAT, START)).toBeGreaterThan(first);
  });
});

describe('a host that is not there', () => {
  it('is asked again after growing pauses, up to a limit', async () => {
    const { sockets, seen } = connect();
    const pauses: number[] = [];
    for (let attempt = 0; attempt < 7; attempt++) {
      sockets.at(-1)!.onclose?.({});
      await vi.advanceTimersByTimeAsync(0);
      const status = seen.statuses.at(-1);
      if (status?.kind !== 'waiting') throw new Error(`status is ${status?.kind}`);
      pauses.push(status.retryAt - Date.now());
      await vi.advanceTimersByTimeAsync(pauses.at(-1)!);
    }
    expect(pauses).toEqual([250, 500, 1000, 2000, 4000, 5000, 5000]);
  });

  it('is told from a host that refuses the token, which is not asked again by itself', async () => {
    const { connection, sockets, seen } = connect(() => Promise.resolve(true));
    sockets.at(-1)!.onclose?.({});
    await vi.advanceTimersByTimeAsync(250);
    sockets.at(-1)!.onclose?.({});
    await vi.advanceTimersByTimeAsync(60_000);
    expect(seen.statuses.at(-1)).toEqual({ kind: 'refused' });
    expect(sockets).toHaveLength(2);
    connection.retryNow();
    expect(sockets).toHaveLength(3);
  });

  it('is noticed by its silence: first a ping, then the end', async () => {
    const { socket, sockets, seen, goOnline } = connect();
    await goOnline();
    await vi.advanceTimersByTimeAsync(15_000);
    expect(socket().last('ping').params).toEqual({ channel: ROOT });
    socket().answer('ping', null);
    await vi.advanceTimersByTimeAsync(20_000);
    expect(seen.statuses.at(-1)?.kind).toBe('online');
    await vi.advanceTimersByTimeAsync(10_250);
    expect(sockets).toHaveLength(2);
    expect(sockets[0]?.closed).toBe(true);
  });
});
