// What the page shows and what a user can do with it. Signals out, methods in; no DOM.
// Everything shown about a session comes from the mirror: an own message appears when the host echoes it,
// and until then only as "being sent".

import { computed, signal } from '@preact/signals';
import { openConfirmation } from './ahp/confirmations';
import { Connection, type ConnectionStatus } from './ahp/connection';
import { RpcError, type SocketLike } from './ahp/rpc';
import {
  type Answer,
  type Answers,
  type ChatState,
  type InitializeResult,
  type InputResponse,
  type Message,
  type ModelSelection,
  ROOT,
  type RootState,
  type SessionState,
  type SessionSummary,
  type Uri,
} from './ahp/types';
import { oneLine } from './format';
import { uuid } from './identity';
import { type Decision, RequestAnswers } from './page/answers';
import { Attachments } from './page/attachments';
import { Changesets } from './page/changesets';
import { ConfirmedDispatches, type Verdict } from './page/confirmed';
import { Diffs } from './page/diffs';
import { DraftSharing } from './page/draft-sharing';
import { Drafts, NEW, withReturned } from './page/drafts';
import { ModelChoice } from './page/model-choice';
import { NewSessionConfig } from './page/new-session-config';
import { Notices } from './page/notices';
import type { OutgoingMessage, SendKind } from './page/outgoing';
import { Sending } from './page/sending';
import { SessionList } from './page/session-list';
import { Stopping } from './page/stopping';
import { stopAction, WaitingMessages } from './page/waiting-messages';
import { MODE_KEY } from './permission-mode';
import type { ResourceContent } from './resource-text';

export interface PageOptions {
  clientId: string;
  openSocket(): SocketLike;
  probe(): Promise<boolean>;
  /** Runs the function before the next frame; several changes before it become one. */
  schedule(publish: () => void): void;
}

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
  readonly #notices = new Notices();
  readonly #drafts = new Drafts();
  readonly #newConfig = new NewSessionConfig();
  readonly #answers = new RequestAnswers({
    dispatch: (channel, action) => this.#connection.dispatch(channel, action),
    chat: (uri) => this.#connection.mirror.chat(uri),
    publish: () => this.#publish(),
    notice: (text) => this.notice(text),
  });

  readonly #confirmed = new ConfirmedDispatches((channel, action) => this.#connection.dispatch(channel, action));
  readonly #draftSharing = new DraftSharing({
    dispatch: (channel, action) => this.#connection.dispatch(channel, action),
    adopt: (session, text) => this.#drafts.set(session, text),
    model: (session) => this.#modelChoice.chosen(session),
    adoptModel: (session, model) => this.#modelChoice.choose(session, model),
  });
  readonly #sending = new Sending({
    dispatch: (channel, action) => this.#connection.dispatch(channel, action),
    dispatchConfirmed: (channel, action) => this.#confirmed.dispatch(channel, action),
    online: () => this.#connection.online,
    chat: (uri) => this.#connection.mirror.chat(uri),
    publish: () => this.#publish(),
    accepted: ({ kind, id }) => {
      if (kind !== 'turn') this.waiting.setHere(id);
    },
    giveBack: (message, why) => this.#notSent(message, why),
  });

  /** The messages that wait in the shown chat. */
  readonly waiting = new WaitingMessages({
    dispatch: (channel, action) => this.#confirmed.dispatch(channel, action),
    chat: () => this.chat.value,
    session: () => this.selected.value,
    stateOf: (chat) => this.#connection.mirror.chat(chat),
    giveBack: (session, text, taken) => {
      this.#returnText(session, text);
      if (taken) this.attachments.giveBack(session, taken);
    },
    takeAgain: (session, text) => {
      if (this.#drafts.get(session) !== text) return;
      this.draft(session, '');
      if (session !== undefined) this.attachments.forget(session);
    },
    steer: (session, message) => void this.#sendMessage(session, message, 'steering'),
    notice: (text) => this.notice(text),
  });
  readonly stopping = new Stopping({
    host: this.host,
    chat: this.chat,
    request: (method, params) => this.#connection.request(method, params),
    notice: (text) => this.notice(text),
    report: (text) => this.#notices.add(text, 'report'),
  });

  // These change more rarely than the chat, whose every change would render their readers again.
  readonly running = computed(() => this.chat.value?.activeTurn !== undefined);
  readonly steering = computed(() => this.chat.value?.steeringMessage);
  readonly queued = computed(() => this.chat.value?.queuedMessages);
  readonly backgroundWork = computed(() => this.chat.value?.backgroundWork);
  /** How the last turn ended. */
  readonly lastOutcome = computed(() => this.chat.value?.turns.at(-1)?.state);
  /** The last turn of the shown chat, if it ended in an error and no turn runs. */
  readonly failedTurn = computed(() => {
    const chat = this.chat.value;
    const last = chat?.turns.at(-1);
    return !chat?.activeTurn && last?.state === 'error' ? last.id : undefined;
  });
  /** The agent of the shown session, or the one that a new session gets. */
  readonly agent = computed(() => {
    const agents = this.root.value?.agents;
    if (this.selected.value === undefined) return agents?.[0];
    const provider = this.session.value?.provider;
    return agents?.find((agent) => agent.provider === provider);
  });
  /** The name of the agent of the shown session. */
  readonly agentName = computed(() => oneLine(this.agent.value?.displayName) || 'the agent');

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

  /** The files that go with the next message. */
  readonly attachments = new Attachments((text) => this.notice(text));
  readonly sessions = this.#list.byUri;
  readonly rows = this.#list.rows;
  /** The messages that the host does not have yet. */
  readonly outgoing = this.#sending.list;
  readonly sentAnswers = this.#answers.unconfirmed;
  readonly answeredByOthers = this.#answers.answeredByOthers;
  readonly #modelChoice = new ModelChoice({
    agent: () => this.agent.value,
    selected: this.selected,
    chat: this.chat,
    outgoing: this.outgoing,
  });
  /** The models of the shown session or of the new one, with the choice for the next message. */
  readonly models = computed(() => this.#modelChoice.setting());
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
        onOthersAction: (envelope) => {
          this.#answers.answeredElsewhere(envelope);
          this.waiting.setElsewhere(envelope);
        },
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
    this.#draftSharing.leave();
    if (before !== undefined) this.#close(before);
    this.changesets.forgetResults();
    this.changesShown.value = false;
    this.selected.value = session;
    this.#publish();
    if (session !== undefined && this.#connection.online) this.#open(session).catch(this.#openFailed(session));
  }

  draft(session: Uri | undefined, text: string): void {
    this.#drafts.set(session, text);
    if (session !== undefined) this.#draftSharing.typed(session, text);
  }

  /**
   * Sends the text of the input box to the shown session, or creates a session for it in the given directory. While a
   * turn runs, the message can steer that turn or wait in the queue.
   */
  async send(text: string, directory: Uri | undefined, kind: SendKind = 'turn'): Promise<void> {
    const session = this.selected.value;
    const plain = this.attachments.take(session, { text, origin: { kind: 'user' } });
    // A steering message joins the running turn, which has its model.
    const message = kind === 'steering' ? plain : this.#modelChoice.take(session, plain);
    this.draft(session, '');
    await this.#sendMessage(session, message, kind, directory);
  }

  /** Sends the message of a turn again, in a turn of its own. */
  async retry(message: Message): Promise<void> {
    const session = this.selected.value;
    const chosen = this.#modelChoice.take(session, message);
    if (session !== undefined) this.#draftSharing.chosen(session);
    await this.#sendMessage(session, chosen, 'turn');
  }

  /** Puts text into the input box, before the text that is there. */
  reuse(text: string): void {
    this.#returnText(this.selected.value, text);
  }

  /** Continues a turn that ended in a resumable error. */
  async resume(turnId: string): Promise<void> {
    const chat = this.chat.value?.resource;
    const verdict: Verdict =
      chat === undefined ? { kind: 'lost' } : await this.#confirmed.dispatch(chat, { type: 'chat/turnResume', turnId });
    if (verdict.kind === 'refused') this.notice(`The turn was not resumed: ${verdict.reason}`);
    else if (verdict.kind === 'lost') this.notice('Not connected: the turn cannot be resumed from here right now.');
  }

  /** Stops the running answer. */
  stopTurn(): void {
    const chat = this.chat.value;
    const turn = chat?.activeTurn;
    if (!chat || !turn) return;
    const sent = this.#connection.dispatch(chat.resource, stopAction(turn.id, turn.startedAt));
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

  /** Chooses the model for the next message of the shown session, or of the new one. */
  chooseModel(selection: ModelSelection): void {
    this.#setModel(this.selected.value, selection);
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

  #setModel(session: Uri | undefined, selection: ModelSelection | undefined): void {
    this.#modelChoice.choose(session, selection);
    if (session !== undefined) this.#draftSharing.chosen(session);
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

  /** Sends a message to a session, or to a new one if `shown` is undefined. */
  async #sendMessage(shown: Uri | undefined, message: Message, kind: SendKind, directory?: Uri): Promise<void> {
    const session = shown ?? this.#newSession();
    if (session === undefined) {
      this.#returnText(shown, message.text);
      return this.notice('The host offers no agent yet, so no session can be created.');
    }
    await this.#sending.send(session, message, kind, async () => {
      if (shown === undefined) await this.#create(session, directory);
      return this.#open(session);
    });
  }

  /** A message was not sent: its text returns to the input box. */
  #notSent({ session, message }: OutgoingMessage, why: string): void {
    const exists = this.#list.has(session) || this.#connection.mirror.session(session) !== undefined;
    if (!exists && this.selected.value === session) this.select(undefined);
    this.#modelChoice.giveBack(exists ? session : NEW, message);
    this.attachments.giveBack(exists ? session : NEW, message);
    this.#returnText(exists ? session : NEW, message.text);
    this.notice(why);
  }

  #returnText(session: Uri | undefined, text: string): void {
    this.draft(session, withReturned(this.#drafts.get(session), text));
  }

  #echoed(clientSeq: number, rejection: string | undefined): void {
    if (this.#answers.echoed(clientSeq, rejection) || this.#draftSharing.echoed(clientSeq)) return;
    if (this.#confirmed.echoed(clientSeq, rejection) || this.#sending.echoed(clientSeq, rejection)) return;
    if (rejection !== undefined) this.notice(`The host refused that: ${rejection}`);
  }

  #ready(host: InitializeResult | undefined): void {
    if (host) this.host.value = host;
    this.#answers.clearUnconfirmed();
    this.#confirmed.clear();
    this.#unsubscribeStrays();
    this.changesets.resubscribe();
    this.#publish();
    this.#list.load(this.#connection).catch((error: unknown) => {
      // After a lost connection the reconnect lists them again.
      if (error instanceof RpcError) this.notice(`The sessions could not be listed: ${error.message}`);
    });
    const session = this.selected.value;
    if (session !== undefined) this.#open(session).then(() => this.#reopened(), this.#openFailed(session));
  }

  #reopened(): void {
    this.#publish();
    this.#sending.sendAgain(this.selected.value);
    this.#draftSharing.reconnected(this.chat.value);
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
    const sending = this.outgoing.value.filter((each) => each.session === channel).map((each) => each.message.text);
    const unsent = [...sending, this.#drafts.get(channel) ?? ''].filter((text) => text !== '');
    this.#forget(channel);
    if (unsent.length > 0) this.#returnText(undefined, unsent.join('\n\n'));
    this.notice('The host no longer has this session.');
  }

  #forget(session: Uri): void {
    if (this.selected.value === session) this.select(undefined);
    this.#list.remove(session);
    this.#sending.removeOf(session);
    this.#modelChoice.forget(session);
    this.attachments.forget(session);
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
    this.waiting.look(chat);
    this.#sending.look(chat);
    this.#sending.removePublished();
    if (selected === undefined || !chat) return;
    this.#draftSharing.show(selected, chat, this.#drafts.get(selected) ?? '');
    if (this.#modelChoice.look(selected, chat)) this.#setModel(selected, undefined);
  }
}

function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
