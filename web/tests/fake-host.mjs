#!/usr/bin/env node
// A small AHP host for developing and testing the page without the real one. It keeps its own, deliberately
// simple copy of the state, so that the page's reducer is compared with something that was written apart from it.
//
// As a program it understands enough of `innkeeper serve` to stand in for it: it prints the same ready line.
// As a module it lets a test cut connections and forget clients.

import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { extname, join, normalize } from 'node:path';
import { pathToFileURL } from 'node:url';
import { WebSocketServer } from 'ws';

import { answerSteps, play } from './fake-demo.mjs';
import { catalogue, changeCounts, FakeEdits } from './fake-edits.mjs';
import { agentWith, MODELS } from './fake-models.mjs';
import {
  decidedCall,
  decisionRefusal,
  hasPendingPart,
  pendingPart,
  requestPermission,
  sessionConfig,
  todoProgress,
} from './fake-permissions.mjs';
import { FakeTurns, METHODS } from './fake-turns.mjs';

const ROOT = 'ahp-root://';
const DIST = join(import.meta.dirname, '../dist');
const TYPES = { '.html': 'text/html', '.js': 'text/javascript', '.css': 'text/css', '.svg': 'image/svg+xml' };
const POLICY =
  "default-src 'self'; connect-src 'self'; style-src 'self'; img-src 'self' data:; object-src 'none'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'";

export class FakeHost {
  token = randomUUID();
  /** Every request and notification that clients sent, for a test to look at. */
  received = [];
  /** Envelopes that were published, for `reconnect`. */
  log = [];
  knownClients = new Set();
  sessions = new Map();
  /** Contents that clients can read, by URI. */
  resources = new Map();
  edits = new FakeEdits();
  turns = new FakeTurns(this);
  /** The additional requests that the host offers to clients that connect from now on. */
  methods = METHODS;
  /** The models of the agent. */
  models = MODELS;
  /** Makes the next dispatched action come back with this reason. */
  rejectNext = undefined;
  /** While set, dispatched actions are lost as if the network had swallowed them. */
  deaf = false;
  #connections = new Set();
  #seq = 40;
  #server = createServer((request, response) => this.#serveFile(request, response));
  #sockets = new WebSocketServer({ noServer: true });

  async listen(port = 0) {
    this.#server.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head));
    await new Promise((resolve) => this.#server.listen(port, '127.0.0.1', resolve));
    return this;
  }

  get port() {
    return this.#server.address().port;
  }

  get socketUrl() {
    return `ws://127.0.0.1:${this.port}/?tkn=${this.token}`;
  }

  get page() {
    return `http://127.0.0.1:${this.port}/?tkn=${this.token}`;
  }

  /** Cuts every connection, as a broken network would. */
  cut() {
    for (const connection of this.#connections) connection.socket.terminate();
  }

  async close() {
    this.cut();
    for (const session of this.sessions.values()) session.stop?.abort();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  chatOf(sessionUri) {
    return this.sessions.get(sessionUri)?.chat;
  }

  /** Sends an action to every subscriber; the state must have been changed before. */
  publish(channel, action, origin, rejectionReason) {
    const envelope = { channel, action, serverSeq: ++this.#seq };
    if (origin) envelope.origin = origin;
    if (rejectionReason !== undefined) envelope.rejectionReason = rejectionReason;
    this.log.push(envelope);
    for (const connection of this.#connections) {
      const own = origin !== undefined && connection.clientId === origin.clientId;
      if (own || connection.subscriptions.has(channel)) connection.notify('action', envelope);
    }
  }

  setModels(models) {
    this.models = models;
    this.publish(ROOT, { type: 'root/agentsChanged', agents: [agentWith(models)] });
  }

  notifyRoot(method, params) {
    for (const connection of this.#connections) {
      if (connection.subscriptions.has(ROOT)) connection.notify(method, { channel: ROOT, ...params });
    }
  }

  async #serveFile(request, response) {
    const path = new URL(request.url, 'http://host').pathname;
    if (path === '/healthz') return response.end('ok');
    const name = path === '/' ? 'index.html' : normalize(path).replace(/^[./\\]+/, '');
    try {
      const content = await readFile(join(DIST, name));
      const headers = { 'content-type': TYPES[extname(name)] ?? 'application/octet-stream' };
      response.writeHead(200, { ...headers, 'content-security-policy': POLICY }).end(content);
    } catch {
      response.writeHead(404).end('not found');
    }
  }

  #upgrade(request, socket, head) {
    const token = new URL(request.url, 'http://host').searchParams.get('tkn');
    if (token !== this.token) {
      socket.end('HTTP/1.1 403 Forbidden\r\nConnection: close\r\n\r\n');
      return;
    }
    this.#sockets.handleUpgrade(request, socket, head, (ws) => {
      const connection = {
        socket: ws,
        clientId: undefined,
        subscriptions: new Set(),
        notify: (method, params) => ws.send(JSON.stringify({ jsonrpc: '2.0', method, params })),
      };
      this.#connections.add(connection);
      ws.on('close', () => this.#connections.delete(connection));
      ws.on('message', (data) => this.#receive(connection, JSON.parse(String(data))));
    });
  }

  #receive(connection, message) {
    this.received.push(message);
    if (message.id === undefined) return this.#notified(connection, message);
    const answer = { jsonrpc: '2.0', id: message.id };
    try {
      answer.result = this.#request(connection, message.method, message.params) ?? null;
    } catch (error) {
      answer.error = { code: error.code ?? -32603, message: error.message, ...(error.data ? { data: error.data } : {}) };
    }
    connection.socket.send(JSON.stringify(answer));
  }

  #request(connection, method, params) {
    switch (method) {
      case 'initialize':
        return this.#initialize(connection, params);
      case 'reconnect':
        return this.#reconnect(connection, params);
      case 'ping':
        return null;
      case 'listSessions':
        return { items: [...this.sessions.values()].filter((each) => each.listed).map(summary) };
      case 'subscribe':
        return { snapshot: this.#subscribe(connection, params.channel) ?? fail(-32008, 'There is no such channel') };
      case 'createSession':
        return this.createSession(params);
      case 'resolveSessionConfig':
        return sessionConfig(params.config);
      case 'resourceRead':
        return this.resources.get(params.uri) ?? this.edits.read(params.uri) ?? fail(-32008, `${params.uri} does not exist`);
      case 'invokeChangesetOperation':
        return this.#operate(params);
      case 'innkeeper/stop':
        return this.turns.stop(this.#sessionOfChat(params.channel), params.what) ?? fail(-32602, 'It has ended already');
      case 'innkeeper/restartAgent':
        return this.turns.restart(this.#sessionOfChat(params.channel));
      case 'disposeSession':
        return this.#disposeSession(params.channel);
      default:
        return fail(-32601, `Unknown method ${method}`);
    }
  }

  #initialize(connection, params) {
    connection.clientId = params.clientId;
    this.knownClients.add(params.clientId);
    const snapshots = (params.initialSubscriptions ?? []).flatMap((uri) => this.#subscribe(connection, uri) ?? []);
    return {
      protocolVersion: params.protocolVersions[0],
      serverSeq: this.#seq,
      serverInfo: { name: 'fake-host', title: 'Fake host', version: '0' },
      defaultDirectory: 'file:///home/guest/projects',
      snapshots,
      _meta: { 'innkeeper.methods': this.methods },
    };
  }

  #reconnect(connection, params) {
    if (!this.knownClients.has(params.clientId)) fail(-32008, 'This client is not known');
    connection.clientId = params.clientId;
    const missing = params.subscriptions.filter((uri) => !this.#subscribe(connection, uri));
    const actions = this.log.filter((each) => each.serverSeq > params.lastSeenServerSeq && params.subscriptions.includes(each.channel));
    return { type: 'replay', actions, missing };
  }

  #subscribe(connection, channel) {
    const state = this.#state(channel);
    if (state === undefined) return undefined;
    connection.subscriptions.add(channel);
    return { resource: channel, state: structuredClone(state), fromSeq: this.#seq };
  }

  #state(channel) {
    if (channel === ROOT) {
      return { agents: [agentWith(this.models)], activeSessions: 0 };
    }
    for (const session of this.sessions.values()) {
      if (session.uri === channel) return session.state;
      if (session.chat.resource === channel) return session.chat;
      const changeset = this.edits.state(session, channel);
      if (changeset) return changeset;
    }
    return undefined;
  }

  createSession({ channel, provider, workingDirectories, config }) {
    if (this.sessions.has(channel)) fail(-32003, 'The session exists already');
    const now = new Date().toISOString();
    const resource = `ahp-chat://default/${Buffer.from(channel).toString('base64url')}`;
    const chat = { resource, title: '', status: 1, modifiedAt: now, turns: [] };
    const state = {
      provider,
      title: '',
      status: 1,
      lifecycle: 'creating',
      activeClients: [],
      workingDirectories: workingDirectories ?? [],
      chats: [{ resource, title: '', status: 1, modifiedAt: now }],
      defaultChat: resource,
      config: sessionConfig(config),
    };
    this.sessions.set(channel, { uri: channel, state, chat, createdAt: now, listed: false });
    return null;
  }

  #disposeSession(uri) {
    const session = this.sessions.get(uri) ?? fail(-32001, 'There is no such session');
    session.stop?.abort();
    this.sessions.delete(uri);
    if (session.listed) this.notifyRoot('root/sessionRemoved', { session: uri });
    return null;
  }

  #notified(connection, { method, params }) {
    if (method === 'unsubscribe') connection.subscriptions.delete(params.channel);
    if (method !== 'dispatchAction' || this.deaf) return;
    if (params.action.type === 'changeset/filesReviewChanged') return this.#review(connection, params);
    const session = [...this.sessions.values()].find((each) => [each.uri, each.chat.resource].includes(params.channel));
    if (!session) return;
    const origin = { clientId: connection.clientId, clientSeq: params.clientSeq };
    const waiting = this.turns.refusal(session.chat, params.action);
    const isDraft = params.action.type === 'chat/draftChanged';
    const reason = (isDraft ? undefined : this.rejectNext) ?? (waiting === null ? refusal(session.chat, params.action) : waiting);
    if (!isDraft) this.rejectNext = undefined;
    if (reason !== undefined) return this.publish(params.channel, params.action, origin, reason);
    if (this.turns.apply(session, params.action, origin)) return;
    if (params.action.type === 'session/configChanged') return this.#changeConfig(session, params.action, origin);
    if (params.action.type === 'chat/toolCallConfirmed') return this.#decide(session, params.action, origin);
    if (params.action.type === 'chat/turnStarted') this.startTurn(session, params.action, origin);
    else if (params.action.type === 'chat/turnCancelled') this.endTurn(session, params.action, 'cancelled', origin);
    else this.#answer(session, params.action, origin);
  }

  #sessionOfChat(channel) {
    return [...this.sessions.values()].find((each) => each.chat.resource === channel) ?? fail(-32008, 'There is no such chat');
  }

  startTurn(session, action, origin) {
    const { chat, state } = session;
    session.held = false;
    chat.activeTurn = { id: action.turnId, startedAt: action.startedAt, message: action.message, responseParts: [] };
    chat.status = 8;
    chat.modifiedAt = action.startedAt;
    this.publish(chat.resource, action, origin);
    if (!session.listed) {
      session.listed = true;
      state.lifecycle = 'ready';
      state.title = action.message.text.split('\n')[0].slice(0, 60);
      this.publish(session.uri, { type: 'session/ready' });
      this.publish(session.uri, { type: 'session/titleChanged', title: state.title });
      this.notifyRoot('root/sessionAdded', { summary: summary(session) });
    }
    this.#summaryChanged(session);
    this.answer(session, answerSteps(action.message));
  }

  /** Plays the steps of an answer into the running turn, and ends it. */
  answer(session, steps) {
    const { chat } = session;
    const { id: turnId, startedAt } = chat.activeTurn;
    const stop = new AbortController();
    session.stop = stop;
    session.commands = new Map();
    const turn = {
      id: turnId,
      parts: chat.activeTurn.responseParts,
      active: chat.activeTurn,
      commands: session.commands,
      publish: (type, fields) => this.publish(chat.resource, { type, turnId, ...fields }),
      ask: (request) => this.#ask(session, request),
      confirm: (calls) => this.#confirm(session, calls),
      todo: (items) => this.#setTodo(session, items),
      activity: (activity) => this.#setActivity(session, activity),
      restart: () => this.#restartTurn(session),
      edit: (change) => this.#edit(session, change),
      background: (work) => this.turns.setWork(session, work),
      takeSteering: () => this.turns.takeSteering(session),
    };
    play(steps, turn, stop.signal).then((part) => {
      if (stop.signal.aborted) return;
      const end = { turnId, duration: Date.now() - Date.parse(startedAt) };
      if (part) this.endTurn(session, { type: 'chat/error', ...end, part }, 'error');
      else this.endTurn(session, { type: 'chat/turnComplete', ...end }, 'complete');
    });
  }

  /** Records a change of the running turn, and adds the call that made it. */
  #edit(session, { path, renamedFrom, toolName = 'Edit', message, ...change }) {
    const { chat, state } = session;
    const uri = `file://${path}`;
    const full = { uri, ...(renamedFrom ? { from: `file://${renamedFrom}` } : {}), ...change };
    this.edits.add(session, chat.activeTurn.id, full);
    if (!state.changesets) {
      state.changesets = catalogue(session.uri);
      this.publish(session.uri, { type: 'session/changesetsChanged', changesets: state.changesets });
    }
    this.changesChanged(session);
    const words = message ?? `${toolName} ${path.split('/').at(-1)}`;
    return {
      toolName,
      message: words,
      result: { success: true, pastTenseMessage: words, content: [{ type: 'fileEdit', ...this.edits.fileEdit(full) }] },
    };
  }

  #operate(params) {
    const session =
      [...this.sessions.values()].find((each) => params.channel.startsWith(`${each.uri}/`)) ?? fail(-32008, 'There is no such channel');
    if (this.rejectNext !== undefined) {
      const reason = this.rejectNext;
      this.rejectNext = undefined;
      fail(-32603, reason);
    }
    const result = this.edits.run(session, params);
    this.changesChanged(session);
    return result;
  }

  #review(connection, { channel, clientSeq, action }) {
    const session = [...this.sessions.values()].find((each) => channel.startsWith(`${each.uri}/`));
    for (const file of action.files) action.reviewed ? session.kept.add(file) : session.kept.delete(file);
    this.publish(channel, action, { clientId: connection.clientId, clientSeq });
  }

  /** Publishes the changesets and the counts of a session. */
  changesChanged(session) {
    const turns = [...session.chat.turns.map((turn) => turn.id), ...(session.chat.activeTurn ? [session.chat.activeTurn.id] : [])];
    for (const kind of ['session', 'uncommitted', ...turns.map((turn) => `turn/${turn}`)]) {
      const channel = `${session.uri}/changeset/${kind}`;
      const { files, operations } = this.edits.state(session, channel);
      this.publish(channel, { type: 'changeset/contentChanged', files, operations });
    }
    this.notifyRoot('root/sessionSummaryChanged', { session: session.uri, changes: { changes: changeCounts(session) } });
  }

  /** Asks the user; resolves when a client completes the request or the turn is stopped. */
  #ask(session, request) {
    session.chat.activeTurn.responseParts.push({ kind: 'inputRequest', request });
    session.chat.status = 24;
    this.publish(session.chat.resource, { type: 'chat/inputRequested', request: structuredClone(request) });
    this.#summaryChanged(session);
    return new Promise((resolve) => {
      session.completed = resolve;
      session.stop.signal.addEventListener('abort', resolve);
    });
  }

  /** Requests permission for calls at the same time; resolves when all were decided or the turn is stopped. */
  #confirm(session, calls) {
    const { chat } = session;
    const turnId = chat.activeTurn.id;
    const publish = (type, fields) => this.publish(chat.resource, { type, turnId, ...fields });
    for (const call of calls) {
      const parts = chat.activeTurn.responseParts;
      parts.push({ kind: 'toolCall', toolCall: requestPermission(call, `call-${parts.length}`, publish, this.edits) });
    }
    chat.status = 24;
    session.waitingSince = new Date().toISOString();
    this.#summaryChanged(session);
    return new Promise((resolve) => {
      session.completed = resolve;
      session.stop.signal.addEventListener('abort', resolve);
    });
  }

  #decide(session, action, origin) {
    const { chat } = session;
    const part = pendingPart(chat, action.toolCallId);
    part.toolCall = decidedCall(part.toolCall, action);
    this.publish(chat.resource, action, origin);
    if (action.approved) {
      const result = { success: true, pastTenseMessage: 'Done', content: [{ type: 'text', text: 'It ran.' }] };
      part.toolCall = { ...part.toolCall, ...result, status: 'completed' };
      this.publish(chat.resource, { type: 'chat/toolCallComplete', turnId: action.turnId, toolCallId: action.toolCallId, result });
    }
    if (hasPendingPart(chat)) return;
    chat.status = 8;
    session.waitingSince = undefined;
    this.#summaryChanged(session);
    session.completed();
  }

  #changeConfig(session, action, origin) {
    Object.assign(session.state.config.values, action.config);
    this.publish(session.uri, action, origin);
  }

  #setTodo(session, items) {
    session.todo = items;
    session.state._meta = { 'innkeeper.todo': { [session.chat.resource]: { items } } };
    this.publish(session.uri, { type: 'session/metaChanged', _meta: session.state._meta });
    this.#summaryChanged(session);
  }

  #setActivity(session, activity) {
    session.chat.activity = activity;
    this.publish(session.chat.resource, { type: 'chat/activityChanged', activity });
  }

  /** Empties the running turn except for its first part, as after a broken stream. */
  #restartTurn({ chat }) {
    const { id: turnId, startedAt, message, responseParts } = chat.activeTurn;
    responseParts.splice(1);
    this.publish(chat.resource, { type: 'chat/turnStarted', turnId, startedAt, message });
    for (const part of responseParts) this.publish(chat.resource, { type: 'chat/responsePart', turnId, part: structuredClone(part) });
  }

  #answer(session, action, origin) {
    const part = openPart(session.chat, action.requestId);
    const given = action.type === 'chat/inputCompleted' ? action.answers : { [action.questionId]: action.answer };
    if (given) part.request.answers = { ...part.request.answers, ...given };
    if (action.type === 'chat/inputCompleted') {
      part.response = action.response;
      session.chat.status = 8;
    }
    this.publish(session.chat.resource, action, origin);
    this.#summaryChanged(session);
    if (part.response !== undefined) session.completed();
  }

  endTurn(session, action, outcome, origin) {
    const { chat } = session;
    session.stop.abort();
    const { activeTurn, ...rest } = chat;
    const parts = activeTurn.responseParts;
    for (const part of parts) {
      if (part.kind !== 'toolCall' || ['completed', 'cancelled'].includes(part.toolCall.status)) continue;
      const { confirmationTitle, editable, options, edits, partialInput, confirmed, ...call } = part.toolCall;
      part.toolCall = { invocationMessage: '', ...call, status: 'cancelled', reason: 'skipped' };
    }
    if (action.part) parts.push(action.part);
    const turn = { ...activeTurn, responseParts: parts, duration: action.duration, state: outcome };
    session.waitingSince = undefined;
    session.chat = {
      ...rest,
      turns: [...chat.turns, turn],
      status: outcome === 'error' ? 2 : 1,
      modifiedAt: new Date(Date.parse(activeTurn.startedAt) + action.duration).toISOString(),
    };
    this.publish(chat.resource, action, origin);
    this.#summaryChanged(session);
    this.turns.ended(session, action);
  }

  #summaryChanged(session) {
    const { status, modifiedAt } = session.chat;
    session.state.status = status;
    Object.assign(session.state.chats[0], { status, modifiedAt });
    this.publish(session.uri, {
      type: 'session/chatUpdated',
      chat: session.chat.resource,
      changes: { status, modifiedAt },
    });
    this.notifyRoot('root/sessionSummaryChanged', { session: session.uri, changes: { status, modifiedAt, _meta: rowMeta(session) } });
  }
}

function refusal(chat, action) {
  if (action.type === 'chat/turnStarted') return chat.activeTurn ? 'A turn is active already' : undefined;
  if (action.type.startsWith('chat/input')) return openPart(chat, action.requestId) ? undefined : 'There is no open request with this id';
  if (action.type === 'chat/toolCallConfirmed') return decisionRefusal(chat, action);
  if (action.type === 'session/configChanged') return undefined;
  if (action.type !== 'chat/turnCancelled') return `${action.type} is not for clients`;
  return chat.activeTurn?.id === action.turnId ? undefined : 'That turn is not active';
}

function openPart(chat, requestId) {
  return chat.activeTurn?.responseParts.find((part) => part.request?.id === requestId && part.response === undefined);
}

function rowMeta({ todo, waitingSince }) {
  return {
    ...(todo ? { 'innkeeper.todo': todoProgress(todo) } : {}),
    ...(waitingSince ? { 'innkeeper.waitingSince': waitingSince } : {}),
  };
}

function summary(session) {
  const { uri, state, chat, createdAt } = session;
  const { provider, title, workingDirectories } = state;
  const { status, modifiedAt } = chat;
  return {
    resource: uri,
    provider,
    title,
    status,
    createdAt,
    modifiedAt,
    workingDirectories,
    defaultChat: chat.resource,
    ...(session.changes ? { changes: changeCounts(session) } : {}),
    _meta: rowMeta(session),
  };
}

function fail(code, message) {
  throw Object.assign(new Error(message), { code });
}

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  const host = await new FakeHost().listen();
  const endpoints = [{ transport: 'ws', url: `ws://127.0.0.1:${host.port}/` }];
  const ready = { event: 'ready', pid: process.pid, version: '0', protocol: ['1.0.0', '0.9.0'], endpoints };
  console.log(JSON.stringify({ ...ready, token: host.token, page: host.page }));
  process.on('SIGTERM', () => process.exit(0));
}
