// What the page shows and what a user can do with it. Signals out, methods in; no DOM.
// Everything shown about a session comes from the mirror: an own message appears when the host echoes it,
// and until then only as "being sent".

import { batch, signal } from '@preact/signals';
import { openConfirmation } from './ahp/confirmations';
import { Connection, type ConnectionStatus } from './ahp/connection';
import { RpcError, type SocketLike } from './ahp/rpc';
import {
  type Answer,
  type Answers,
  type ChatState,
  type InitializeResult,
  type InputResponse,
  ROOT,
  type RootState,
  type SessionState,
  type SessionSummary,
  type Uri,
} from './ahp/types';
import { uuid } from './identity';
import { type Decision, RequestAnswers } from './page/answers';
import { Changesets } from './page/changesets';
import { Diffs } from './page/diffs';
import { Drafts, NEW } from './page/drafts';
import { NewSessionConfig } from './page/new-session-config';
import { Notices } from './page/notices';
import { type OutgoingMessage, OutgoingMessages } from './page/outgoing';
import { SessionList } from './page/session-list';
import { MODE_KEY } from './permission-mode';
import type { ResourceContent } from './resource-text';

export interface PageOptions {
  clientId: string;
  openSocket(): SocketLike;
  probe(): Promise<boolean>;
  /** Runs the function before the next frame; several changes before it become one. */
  schedule(publish: () => void): void;
}

/** A dispatch is only answered by its echo, and the host ignores a dispatch to an unknown session. */
const ECHO_TIMEOUT_MS = 30_000;

const SESSION_NOT_FOUND = -32001;

export class Page {
  readonly status = signal<ConnectionStatus>({ kind: 'connecting' });
  readonly host = signal<InitializeResult | undefined>(undefined);
  readonly root = signal<RootState | undefined>(undefined);
  /** The session that is shown; undefined is the "new session" view. */
  readonly selected = signal<Uri | undefined>(undefined);
  readonly session = signal<SessionState | undefined>(undefined);
  readonly chat = signal<ChatState | undefined>(undefined);

  /** Whether the changes of the session are shown instead of the conversation. */
  readonly changesShown = signal(false);

  readonly #list = new SessionList();
  readonly #outgoing = new OutgoingMessages();
  readonly #notices = new Notices();
  readonly #drafts = new Drafts();
  readonly #newConfig = new NewSessionConfig();
  readonly #answers = new RequestAnswers({
    dispatch: (channel, action) => this.#connection.dispatch(channel, action),
    chat: (uri) => this.#connection.mirror.chat(uri),
    publish: () => this.#publish(),
    notice: (text) => this.notice(text),
  });

  readonly changesets = new Changesets({
    online: () => this.#connection.online,
    state: (channel) => this.#connection.mirror.changeset(channel),
    subscribe: (channel) => this.#connection.subscribe(channel),
    unsubscribe: (channel) => this.#connection.unsubscribe(channel),
    request: (method, params) => this.#connection.request(method, params),
    dispatch: (channel, action) => this.#connection.dispatch(channel, action),
    notice: (text) => this.notice(text),
  });
  readonly diffs = new Diffs((uri) => this.readResource(uri));

  readonly sessions = this.#list.byUri;
  readonly rows = this.#list.rows;
  readonly outgoing = this.#outgoing.list;
  readonly sentAnswers = this.#answers.unconfirmed;
  readonly answeredByOthers = this.#answers.answeredByOthers;
  readonly notices = this.#notices.list;
  readonly drafts = this.#drafts.bySession;
  /** The permission modes for the next new session. */
  readonly newModes = this.#newConfig.modes;

  #connection: Connection;
  #schedule: PageOptions['schedule'];
  #scheduled = false;
  /** Sessions that are being deleted from here: their removal needs no notice. */
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
        onOthersAction: (envelope) => this.#answers.answeredElsewhere(envelope),
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

  /** Retries now if the page waits for the next attempt. A refused connection stays closed until the user retries. */
  retryWaiting(): void {
    if (this.status.value.kind === 'waiting') this.#connection.retryNow();
  }

  /** Shows a session, or the "new session" view. */
  select(session: Uri | undefined): void {
    const before = this.selected.value;
    if (before === session) return;
    if (before !== undefined) this.#close(before);
    this.changesets.forgetResults();
    this.changesShown.value = false;
    this.selected.value = session;
    this.#publish();
    if (session !== undefined && this.#connection.online) this.#open(session).catch(this.#openFailed(session));
  }

  draft(session: Uri | undefined, text: string): void {
    this.#drafts.set(session, text);
  }

  /** Sends a message to the shown session, or creates a session for it in the given directory. */
  async send(text: string, directory: Uri | undefined): Promise<void> {
    const shown = this.selected.value;
    const session = shown ?? this.#newSession();
    if (session === undefined) return this.notice('The host offers no agent yet, so no session can be created.');
    const message: OutgoingMessage = { session, turnId: uuid(), text };
    this.#outgoing.add(message);
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

  /** Shares an unfinished answer with the other clients of a chat. */
  shareAnswer(chat: Uri, requestId: string, questionId: string, answer: Answer): void {
    this.#answers.share(chat, requestId, questionId, answer);
  }

  /** Completes an input request. The host takes the first completion of all clients. */
  respond(chat: Uri, requestId: string, response: InputResponse, answers?: Answers): void {
    this.#answers.respond(chat, requestId, response, answers);
  }

  /** Allows or denies a tool call of the shown chat. The host takes the first decision of all clients. */
  decide(toolCallId: string, decision: Decision): void {
    const chat = this.chat.value;
    const turn = chat?.activeTurn;
    if (chat && turn && openConfirmation(turn, toolCallId)) this.#answers.decide(chat.resource, turn.id, toolCallId, decision);
  }

  /** Asks the host for the settings of a new session. */
  loadNewConfig(): void {
    const provider = this.root.value?.agents[0]?.provider;
    if (provider !== undefined) void this.#newConfig.load(this.#connection, provider);
  }

  /** Changes the permission mode of the shown session, or of the session that the next message creates. */
  changeMode(mode: string): void {
    const session = this.selected.value;
    if (session === undefined) {
      this.#newConfig.chooseMode(mode);
      return;
    }
    const sent = this.#connection.dispatch(session, { type: 'session/configChanged', config: { [MODE_KEY]: mode } });
    if (sent === undefined) this.notice('Not connected: the permission mode cannot be changed from here right now.');
  }

  /** Reads content that a conversation refers to. */
  readResource(uri: Uri): Promise<ResourceContent> {
    return this.#connection.request('resourceRead', { channel: ROOT, uri });
  }

  /** Deletes a session for good. */
  async remove(session: Uri): Promise<void> {
    this.#removing.add(session);
    try {
      await this.#connection.request('disposeSession', { channel: session });
      this.#forget(session);
    } catch (error) {
      // The session is gone, which is what was asked for.
      if (error instanceof RpcError && error.code === SESSION_NOT_FOUND) this.#forget(session);
      else this.notice(`The session was not deleted: ${reason(error)}`);
    } finally {
      this.#removing.delete(session);
    }
  }

  notice(text: string): void {
    this.#notices.add(text);
  }

  dismiss(id: number): void {
    this.#notices.dismiss(id);
  }

  #newSession(): Uri | undefined {
    const agent = this.root.value?.agents[0];
    return agent && `${agent.provider}:/${uuid()}`;
  }

  async #create(session: Uri, directory: Uri | undefined): Promise<void> {
    this.selected.value = session;
    this.#publish();
    const config = this.#newConfig.take();
    await this.#connection.request('createSession', {
      channel: session,
      provider: session.slice(0, session.indexOf(':')),
      ...(directory === undefined ? {} : { workingDirectories: [directory] }),
      ...(config === undefined ? {} : { config }),
    });
  }

  /** Subscribes to a session and its default chat, unless it is subscribed already; returns the chat. */
  async #open(session: Uri): Promise<Uri> {
    const { mirror } = this.#connection;
    if (!mirror.session(session)) await this.#connection.subscribe(session);
    const chat = mirror.session(session)?.defaultChat;
    if (chat === undefined) throw new Error('the session has no chat to show');
    if (!mirror.chat(chat)) await this.#connection.subscribe(chat);
    // The user may have selected another session meanwhile; the chat's address is still valid.
    if (this.selected.value !== session) this.#close(session);
    return chat;
  }

  #openFailed(session: Uri): (error: unknown) => void {
    return (error) => {
      // After a lost connection the session is opened again by the reconnect.
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

  #dispatch(message: OutgoingMessage, chat: Uri): void {
    const clientSeq = this.#connection.dispatch(chat, {
      type: 'chat/turnStarted',
      turnId: message.turnId,
      startedAt: new Date().toISOString(),
      message: { text: message.text, origin: { kind: 'user' } },
    });
    if (clientSeq === undefined) throw new Error('not connected to the host');
    this.#outgoing.replace(message.turnId, { ...message, sent: { chat, clientSeq } });
    setTimeout(() => this.#echoOverdue(message.turnId, clientSeq), ECHO_TIMEOUT_MS);
  }

  #echoed(clientSeq: number, rejection: string | undefined): void {
    if (this.#answers.echoed(clientSeq, rejection)) return;
    const message = this.#outgoing.sentAs(clientSeq);
    if (rejection !== undefined && message) this.#takeBack(message, `The host refused the message: ${rejection}`);
    else if (rejection !== undefined) this.notice(`The host refused that: ${rejection}`);
    else if (message) {
      // The echo is in the mirror already; the message must neither be shown twice nor disappear in between.
      batch(() => {
        this.#outgoing.replace(message.turnId, undefined);
        this.#publish();
      });
    }
  }

  #echoOverdue(turnId: string, clientSeq: number): void {
    const message = this.#outgoing.sentAs(clientSeq);
    // Without a connection the message waits: it is sent again after the reconnect if the host does not have it.
    if (message?.turnId !== turnId || !this.#connection.online) return;
    this.#takeBack(message, 'The host did not accept the message. It may no longer have this session.');
  }

  /** Returns the text to the input box, unless other text was typed meanwhile. */
  #takeBack(message: OutgoingMessage, why: string): void {
    const { session } = message;
    this.#outgoing.replace(message.turnId, undefined);
    const exists = this.#list.has(session) || this.#connection.mirror.session(session) !== undefined;
    if (!exists && this.selected.value === session) this.select(undefined);
    const place = exists ? session : NEW;
    if (this.#drafts.get(place) === undefined) this.draft(place, message.text);
    this.notice(why);
  }

  #ready(host: InitializeResult | undefined): void {
    if (host) this.host.value = host;
    this.#answers.clearUnconfirmed();
    this.#unsubscribeStrays();
    this.changesets.resubscribe();
    this.#publish();
    this.#list.load(this.#connection).catch((error: unknown) => {
      // After a lost connection the reconnect lists them again.
      if (error instanceof RpcError) this.notice(`The sessions could not be listed: ${error.message}`);
    });
    const session = this.selected.value;
    if (session !== undefined) this.#open(session).then(() => this.#sendAgain(), this.#openFailed(session));
  }

  /** Unsubscribes channels of sessions that were left while the connection was lost. */
  #unsubscribeStrays(): void {
    const { mirror } = this.#connection;
    const shown = this.selected.value;
    const kept = [ROOT, shown, shown === undefined ? undefined : mirror.session(shown)?.defaultChat];
    for (const channel of mirror.channels()) {
      const isShown = kept.includes(channel) || this.changesets.isWatched(channel);
      if (!isShown) this.#connection.unsubscribe(channel);
    }
  }

  /** After a reconnect: sends the messages again that the host does not have. */
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

  #notified(method: string, params: Record<string, unknown>): void {
    const session = params['session'] as Uri;
    if (method === 'root/sessionAdded') {
      this.#list.add(params['summary'] as SessionSummary);
    } else if (method === 'root/sessionRemoved') {
      const needsNotice = this.selected.value === session && !this.#removing.has(session);
      this.#forget(session);
      if (needsNotice) this.notice('This session was deleted.');
    } else if (method === 'root/sessionSummaryChanged') {
      this.#list.change(session, params['changes'] as Partial<SessionSummary>);
    }
  }

  #lost(channel: Uri): void {
    if (channel !== this.selected.value) return;
    const unsent = this.#drafts.get(channel) ?? this.outgoing.value.find((each) => each.session === channel)?.text;
    this.#forget(channel);
    if (unsent !== undefined && this.#drafts.get(undefined) === undefined) this.draft(undefined, unsent);
    this.notice('The host no longer has this session.');
  }

  #forget(session: Uri): void {
    if (this.selected.value === session) this.select(undefined);
    this.#list.remove(session);
    this.#outgoing.removeOf(session);
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
    this.changesets.publish();
    this.#outgoing.removePublished((uri) => mirror.chat(uri));
  }
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
