// What the page shows and what a person can do with it. Signals out, methods in; no DOM.
// Everything shown about a session comes from the mirror: an own message appears when the host echoes it,
// and until then only as "being sent".

import { batch, computed, signal, type ReadonlySignal } from '@preact/signals';

import { Connection, type ConnectionStatus } from './ahp/connection';
import { RpcError, type SocketLike } from './ahp/rpc';
import { ROOT, type ChatState, type InitializeResult, type RootState, type SessionState, type SessionSummary, type Uri } from './ahp/types';
import { uuid } from './identity';

export interface Notice {
  id: number;
  text: string;
}

/** A message that was typed here and is not part of the chat's state yet. */
export interface Outgoing {
  session: Uri;
  turnId: string;
  text: string;
  /** The chat and the number of the dispatch, once it was dispatched. */
  sent?: { chat: Uri; clientSeq: number };
}

export interface PageOptions {
  clientId: string;
  openSocket(): SocketLike;
  probe(): Promise<boolean>;
  /** Runs the function before the next picture; many changes before it become one. */
  schedule(publish: () => void): void;
}

/** The key of the unsent text on the "new session" view. */
export const NEW = '';

/** Notices beyond this push out the oldest. */
const MOST_NOTICES = 4;
/** A dispatch has no answer but its echo, and the host ignores a session that it does not know. */
const ECHO_TIMEOUT_MS = 30_000;
/** Pages of the session list that are followed, so that a confused host cannot keep the page asking. */
const MOST_LIST_PAGES = 50;

const SESSION_NOT_FOUND = -32001;

export class Page {
  readonly status = signal<ConnectionStatus>({ kind: 'connecting' });
  readonly host = signal<InitializeResult | undefined>(undefined);
  readonly root = signal<RootState | undefined>(undefined);
  readonly sessions = signal<ReadonlyMap<Uri, SessionSummary>>(new Map());
  /** The session that is shown; undefined is the "new session" view. */
  readonly selected = signal<Uri | undefined>(undefined);
  readonly session = signal<SessionState | undefined>(undefined);
  readonly chat = signal<ChatState | undefined>(undefined);
  readonly outgoing = signal<readonly Outgoing[]>([]);
  readonly notices = signal<readonly Notice[]>([]);
  /** Unsent text by session. */
  readonly drafts = signal<ReadonlyMap<Uri, string>>(new Map());
  /** Newest first, as a list wants it. */
  readonly rows: ReadonlySignal<SessionSummary[]> = computed(() =>
    [...this.sessions.value.values()].sort((a, b) => b.modifiedAt.localeCompare(a.modifiedAt)),
  );

  #connection: Connection;
  #schedule: PageOptions['schedule'];
  #scheduled = false;
  #nextNotice = 1;
  /** Sessions that are being deleted from here, whose end is no news. */
  #removing = new Set<Uri>();

  constructor(options: PageOptions) {
    this.#schedule = options.schedule;
    this.#connection = new Connection({
      clientId: options.clientId,
      openSocket: options.openSocket,
      probe: options.probe,
      events: {
        onStatus: (status) => (this.status.value = status),
        onReady: (host) => this.#ready(host),
        onChange: () => this.#publishSoon(),
        onLost: (channel) => this.#lost(channel),
        onEcho: (clientSeq, rejection) => this.#echoed(clientSeq, rejection),
        onNotification: (method, params) => this.#notified(method, params),
      },
    });
  }

  start(): void {
    this.#connection.start();
  }

  stop(): void {
    this.#connection.stop();
  }

  retryNow(): void {
    this.#connection.retryNow();
  }

  /** Cuts the pause before the next attempt short; a refusal stays one until a person asks again. */
  retryWaiting(): void {
    if (this.status.value.kind === 'waiting') this.#connection.retryNow();
  }

  /** Shows a session, or the "new session" view. */
  select(session: Uri | undefined): void {
    const before = this.selected.value;
    if (before === session) return;
    if (before !== undefined) this.#close(before);
    this.selected.value = session;
    this.#publish();
    if (session !== undefined && this.#connection.online) this.#open(session).catch(this.#openFailed(session));
  }

  draft(session: Uri | undefined, text: string): void {
    const drafts = new Map(this.drafts.value);
    if (text === '') drafts.delete(session ?? NEW);
    else drafts.set(session ?? NEW, text);
    this.drafts.value = drafts;
  }

  /** Sends a message to the shown session, or makes a session for it in the given directory. */
  async send(text: string, directory: Uri | undefined): Promise<void> {
    const shown = this.selected.value;
    const session = shown ?? this.#newSession();
    if (session === undefined) return this.notice('The host offers no agent yet, so there is nobody to talk to.');
    const message: Outgoing = { session, turnId: uuid(), text };
    this.outgoing.value = [...this.outgoing.value, message];
    this.draft(shown, '');
    try {
      if (shown === undefined) await this.#create(session, directory);
      const chat = await this.#open(session);
      this.#dispatch(message, chat);
    } catch (error) {
      this.#takeBack(message, `The message was not sent: ${reason(error)}`);
    }
  }

  /** Stops the running answer. */
  stopTurn(): void {
    const chat = this.chat.value;
    const turn = chat?.activeTurn;
    if (!chat || !turn) return;
    const started = Date.parse(turn.startedAt);
    const duration = Number.isNaN(started) ? 0 : Math.max(0, Date.now() - started);
    const sent = this.#connection.dispatch(chat.resource, { type: 'chat/turnCancelled', turnId: turn.id, duration });
    if (sent === undefined) this.notice('Not connected: the answer cannot be stopped from here right now.');
  }

  /** Deletes a session for good. */
  async remove(session: Uri): Promise<void> {
    this.#removing.add(session);
    try {
      await this.#connection.request('disposeSession', { channel: session });
      this.#forget(session);
    } catch (error) {
      // Gone is what was asked for, whoever did it.
      if (error instanceof RpcError && error.code === SESSION_NOT_FOUND) this.#forget(session);
      else this.notice(`The session was not deleted: ${reason(error)}`);
    } finally {
      this.#removing.delete(session);
    }
  }

  notice(text: string): void {
    const kept = this.notices.value.slice(-(MOST_NOTICES - 1));
    this.notices.value = [...kept, { id: this.#nextNotice++, text }];
  }

  dismiss(id: number): void {
    this.notices.value = this.notices.value.filter((notice) => notice.id !== id);
  }

  #newSession(): Uri | undefined {
    const agent = this.root.value?.agents[0];
    return agent && `${agent.provider}:/${uuid()}`;
  }

  async #create(session: Uri, directory: Uri | undefined): Promise<void> {
    this.selected.value = session;
    this.#publish();
    await this.#connection.request('createSession', {
      channel: session,
      provider: session.slice(0, session.indexOf(':')),
      ...(directory === undefined ? {} : { workingDirectories: [directory] }),
    });
  }

  /** Subscribes to a session and its default chat, as far as that is not done yet; gives the chat. */
  async #open(session: Uri): Promise<Uri> {
    const { mirror } = this.#connection;
    if (!mirror.session(session)) await this.#connection.subscribe(session);
    const chat = mirror.session(session)?.defaultChat;
    if (chat === undefined) throw new Error('the session has no chat to show');
    if (!mirror.chat(chat)) await this.#connection.subscribe(chat);
    // The person may have gone elsewhere meanwhile; the chat's address is good all the same.
    if (this.selected.value !== session) this.#close(session);
    return chat;
  }

  #openFailed(session: Uri): (error: unknown) => void {
    return (error) => {
      // A lost connection opens the session again when it is back.
      if (!(error instanceof RpcError) || this.selected.value !== session) return;
      this.#forget(session);
      this.notice(`The session could not be opened: ${error.message}`);
    };
  }

  #close(session: Uri): void {
    const chat = this.#connection.mirror.session(session)?.defaultChat;
    if (chat !== undefined) this.#connection.unsubscribe(chat);
    this.#connection.unsubscribe(session);
  }

  #dispatch(message: Outgoing, chat: Uri): void {
    const clientSeq = this.#connection.dispatch(chat, {
      type: 'chat/turnStarted',
      turnId: message.turnId,
      startedAt: new Date().toISOString(),
      message: { text: message.text, origin: { kind: 'user' } },
    });
    if (clientSeq === undefined) throw new Error('not connected to the host');
    this.#replaceOutgoing(message.turnId, { ...message, sent: { chat, clientSeq } });
    setTimeout(() => this.#echoOverdue(message.turnId, clientSeq), ECHO_TIMEOUT_MS);
  }

  #echoed(clientSeq: number, rejection: string | undefined): void {
    const message = this.outgoing.value.find((each) => each.sent?.clientSeq === clientSeq);
    if (rejection !== undefined && message) this.#takeBack(message, `The host refused the message: ${rejection}`);
    else if (rejection !== undefined) this.notice(`The host refused that: ${rejection}`);
    else if (message) {
      // The echo is in the mirror already; the message must not be seen twice, nor vanish in between.
      batch(() => {
        this.#replaceOutgoing(message.turnId, undefined);
        this.#publish();
      });
    }
  }

  #echoOverdue(turnId: string, clientSeq: number): void {
    const message = this.outgoing.value.find((each) => each.turnId === turnId && each.sent?.clientSeq === clientSeq);
    // Without a connection the message waits: it is sent again when the host is back and does not have it.
    if (!message || !this.#connection.online) return;
    this.#takeBack(message, 'The host did not take the message. It may not know this session any more.');
  }

  /** Gives the text back to the person, unless something else was typed meanwhile. */
  #takeBack(message: Outgoing, why: string): void {
    const { session } = message;
    this.#replaceOutgoing(message.turnId, undefined);
    const exists = this.sessions.value.has(session) || this.#connection.mirror.session(session) !== undefined;
    if (!exists && this.selected.value === session) this.select(undefined);
    const place = exists ? session : NEW;
    if (!this.drafts.value.has(place)) this.draft(place, message.text);
    this.notice(why);
  }

  #replaceOutgoing(turnId: string, next: Outgoing | undefined): void {
    const others = this.outgoing.value.filter((each) => each.turnId !== turnId);
    this.outgoing.value = next ? [...others, next] : others;
  }

  #ready(host: InitializeResult | undefined): void {
    if (host) this.host.value = host;
    this.#unsubscribeStrays();
    this.#publish();
    this.#listSessions().catch((error: unknown) => {
      // A lost connection lists them again when it is back.
      if (error instanceof RpcError) this.notice(`The sessions could not be listed: ${error.message}`);
    });
    const session = this.selected.value;
    if (session !== undefined) this.#open(session).then(() => this.#sendAgain(), this.#openFailed(session));
  }

  /** A connection that broke while a session was being left may have brought its channels back. */
  #unsubscribeStrays(): void {
    const { mirror } = this.#connection;
    const shown = this.selected.value;
    const kept = [ROOT, shown, shown === undefined ? undefined : mirror.session(shown)?.defaultChat];
    for (const channel of mirror.channels()) {
      if (!kept.includes(channel)) this.#connection.unsubscribe(channel);
    }
  }

  /** After a reconnect: what the host has is done, what it does not have is sent once more. */
  #sendAgain(): void {
    this.#publish();
    for (const message of this.outgoing.value) {
      if (!message.sent) continue;
      if (message.session !== this.selected.value) {
        this.#takeBack(message, 'The connection broke before the host confirmed a message; look before sending it again.');
      } else if (this.#connection.online) {
        this.#dispatch(message, message.sent.chat);
      }
    }
  }

  async #listSessions(): Promise<void> {
    const found = new Map<Uri, SessionSummary>();
    let cursor: string | undefined;
    for (let page = 0; page < MOST_LIST_PAGES; page++) {
      const params = { channel: ROOT, ...(cursor === undefined ? {} : { cursor }) };
      cursor = undefined;
      await this.#connection.request<{ items: SessionSummary[]; nextCursor?: string }>('listSessions', params, (result) => {
        for (const summary of result.items) found.set(summary.resource, summary);
        cursor = result.nextCursor;
        if (cursor === undefined) this.sessions.value = found;
      });
      if (cursor === undefined) return;
    }
    this.sessions.value = found;
  }

  #notified(method: string, params: Record<string, unknown>): void {
    const session = params['session'] as Uri;
    if (method === 'root/sessionAdded') {
      const summary = params['summary'] as SessionSummary;
      this.sessions.value = new Map(this.sessions.value).set(summary.resource, summary);
    } else if (method === 'root/sessionRemoved') {
      const isNews = this.selected.value === session && !this.#removing.has(session);
      this.#forget(session);
      if (isNews) this.notice('This session was deleted.');
    } else if (method === 'root/sessionSummaryChanged') {
      const known = this.sessions.value.get(session);
      if (!known) return;
      const changes = params['changes'] as Partial<SessionSummary>;
      this.sessions.value = new Map(this.sessions.value).set(session, { ...known, ...changes });
    }
  }

  #lost(channel: Uri): void {
    if (channel !== this.selected.value) return;
    const unsent = this.drafts.value.get(channel) ?? this.outgoing.value.find((each) => each.session === channel)?.text;
    this.#forget(channel);
    if (unsent !== undefined && !this.drafts.value.has(NEW)) this.draft(undefined, unsent);
    this.notice('The host no longer has this session.');
  }

  #forget(session: Uri): void {
    if (this.selected.value === session) this.select(undefined);
    const sessions = new Map(this.sessions.value);
    if (sessions.delete(session)) this.sessions.value = sessions;
    this.outgoing.value = this.outgoing.value.filter((message) => message.session !== session);
    this.draft(session, '');
  }

  #publishSoon(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    this.#schedule(() => this.#publish());
  }

  #publish(): void {
    this.#scheduled = false;
    const { mirror } = this.#connection;
    const selected = this.selected.value;
    const session = selected === undefined ? undefined : mirror.session(selected);
    const chat = session?.defaultChat === undefined ? undefined : mirror.chat(session.defaultChat);
    this.root.value = mirror.root();
    this.session.value = session;
    this.chat.value = chat;
    const waiting = this.outgoing.value.filter((message) => !isInState(mirror.chat(message.sent?.chat ?? ''), message));
    if (waiting.length !== this.outgoing.value.length) this.outgoing.value = waiting;
  }
}

function isInState(chat: ChatState | undefined, message: Outgoing): boolean {
  if (!chat) return false;
  return chat.activeTurn?.id === message.turnId || chat.turns.some((turn) => turn.id === message.turnId);
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
