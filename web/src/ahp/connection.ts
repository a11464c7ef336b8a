// The connection to the host: open, handshake, keep alive, detect its loss, reconnect.
// Owns the socket and the mirror; page.ts decides what is shown.

import { Mirror } from './mirror';
import { ConnectionLost, RpcError, RpcPeer, type SocketLike } from './rpc';
import { type Action, type ActionEnvelope, type InitializeResult, type ReconnectResult, ROOT, type Snapshot, type Uri } from './types';

export type ConnectionStatus =
  | { kind: 'connecting' }
  | { kind: 'online' }
  /** Not connected; the next attempt is automatic. */
  | { kind: 'waiting'; retryAt: number }
  /** The host is running but rejects this page. Only the user can change that. */
  | { kind: 'refused' }
  /** The host does not support a protocol version of this page. */
  | { kind: 'incompatible'; message: string };

export interface ConnectionEvents {
  onStatus(status: ConnectionStatus): void;
  /** Connected, with the mirror up to date; `host` is set after `initialize`, not after `reconnect`. */
  onReady(host: InitializeResult | undefined): void;
  /** The mirror's copy of this channel changed. */
  onChange(channel: Uri): void;
  /** The host no longer has this channel. */
  onLost(channel: Uri): void;
  /** An action of this client was echoed or rejected. */
  onEcho(clientSeq: number, rejectionReason: string | undefined): void;
  /** An action of another client changed the mirror. */
  onOthersAction(envelope: ActionEnvelope): void;
  onNotification(method: string, params: Record<string, unknown>): void;
}

export interface ConnectionOptions {
  clientId: string;
  openSocket(): SocketLike;
  /** Whether the host answers HTTP: distinguishes a rejected token from a missing host. */
  probe(): Promise<boolean>;
  events: ConnectionEvents;
}

const PROTOCOL_VERSIONS = ['1.0.0', '0.9.0'];
const UNSUPPORTED_VERSION = -32005;

/** The first delay before a retry; it doubles up to the maximum. */
const FIRST_RETRY_MS = 250;
const LONGEST_RETRY_MS = 5_000;
/** The timeout of opening and handshake, which are fast on a running host. */
const HANDSHAKE_TIMEOUT_MS = 10_000;
/** How often silence is checked, after which silence a ping is sent, and after which the host counts as gone. */
const WATCH_INTERVAL_MS = 5_000;
const PING_AFTER_MS = 10_000;
const GONE_AFTER_MS = 25_000;
/** One rejected attempt can be a starting host; two in a row with a running host are a rejection. */
const REFUSALS_THAT_COUNT = 2;

export class Connection {
  readonly mirror = new Mirror();
  #options: ConnectionOptions;
  #peer: RpcPeer | undefined;
  #online = false;
  #initialized = false;
  #lastSeenSeq = 0;
  // A reload keeps the client id, so sequence numbers must continue to rise.
  #clientSeq = Date.now();
  #failures = 0;
  #refusals = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #attempt = 0;

  constructor(options: ConnectionOptions) {
    this.#options = options;
  }

  get online(): boolean {
    return this.#online;
  }

  start(): void {
    this.#connect();
  }

  stop(): void {
    this.#attempt++;
    clearTimeout(this.#timer);
    this.#online = false;
    this.#peer?.close();
    this.#peer = undefined;
  }

  /** Retries now; no effect while connected or connecting. */
  retryNow(): void {
    if (this.#peer) return;
    this.#refusals = 0;
    this.#connect();
  }

  request<T>(method: string, params: object, onResult?: (result: T) => void): Promise<T> {
    if (!this.#online || !this.#peer) return Promise.reject(new ConnectionLost('Not connected to the host'));
    return this.#peer.request<T>(method, params, onResult);
  }

  /** Subscribes and puts the snapshot into the mirror before any later action can arrive. */
  async subscribe(channel: Uri): Promise<void> {
    await this.request<{ snapshot?: Snapshot }>('subscribe', { channel }, (result) => {
      if (result.snapshot) this.mirror.load({ ...result.snapshot, resource: channel });
    });
    this.#options.events.onChange(channel);
  }

  unsubscribe(channel: Uri): void {
    this.mirror.drop(channel);
    if (this.#online) this.#peer?.notify('unsubscribe', { channel });
  }

  /** Dispatches an action; returns its sequence number, which `onEcho` reports. Undefined if not connected. */
  dispatch(channel: Uri, action: Action): number | undefined {
    if (!this.#online || !this.#peer) return undefined;
    const clientSeq = ++this.#clientSeq;
    this.#peer.notify('dispatchAction', { channel, clientSeq, action });
    return clientSeq;
  }

  #connect(): void {
    clearTimeout(this.#timer);
    const attempt = ++this.#attempt;
    this.#options.events.onStatus({ kind: 'connecting' });
    const socket = this.#options.openSocket();
    const peer = new RpcPeer(socket, (method, params) => this.#notified(method, params));
    this.#peer = peer;
    let opened = false;
    this.#timer = setTimeout(() => this.#ended(attempt, opened), HANDSHAKE_TIMEOUT_MS);
    socket.onopen = () => {
      opened = true;
      this.#refusals = 0;
      this.#shakeHands(peer).then(
        (host) => this.#ready(attempt, host),
        (error: unknown) => this.#handshakeFailed(attempt, error),
      );
    };
    socket.onerror = () => {};
    socket.onclose = () => this.#ended(attempt, opened);
  }

  async #shakeHands(peer: RpcPeer): Promise<InitializeResult | undefined> {
    if (this.#initialized) {
      try {
        await this.#resume(peer);
        return undefined;
      } catch (error) {
        // A restarted host does not know this client: initialize again with the same subscriptions.
        if (!(error instanceof RpcError)) throw error;
      }
    }
    return this.#initialize(peer);
  }

  #resume(peer: RpcPeer): Promise<unknown> {
    const subscriptions = this.mirror.channels();
    const { clientId } = this.#options;
    const params = { channel: ROOT, clientId, lastSeenServerSeq: this.#lastSeenSeq, subscriptions };
    return peer.request<ReconnectResult>('reconnect', params, (result) => {
      if (result.type === 'replay') {
        for (const envelope of result.actions) this.#received(envelope);
        this.#lose(result.missing);
      } else {
        this.#loadAll(result.snapshots, subscriptions);
      }
    });
  }

  #initialize(peer: RpcPeer): Promise<InitializeResult> {
    const subscriptions = [...new Set([ROOT, ...this.mirror.channels()])];
    const params = {
      channel: ROOT,
      protocolVersions: PROTOCOL_VERSIONS,
      clientId: this.#options.clientId,
      clientInfo: { name: 'innkeeper-page' },
      initialSubscriptions: subscriptions,
    };
    return peer.request<InitializeResult>('initialize', params, (result) => {
      this.#initialized = true;
      // A restarted host may count from a lower number, so this is set, not increased.
      this.#lastSeenSeq = result.serverSeq;
      this.#loadAll(result.snapshots, subscriptions);
    });
  }

  #loadAll(snapshots: Snapshot[], subscriptions: Uri[]): void {
    const present = new Set<Uri>();
    for (const snapshot of snapshots) {
      present.add(snapshot.resource);
      this.mirror.load(snapshot);
      this.#lastSeenSeq = Math.max(this.#lastSeenSeq, snapshot.fromSeq);
      this.#options.events.onChange(snapshot.resource);
    }
    this.#lose(subscriptions.filter((channel) => !present.has(channel)));
  }

  #lose(channels: Uri[]): void {
    for (const channel of channels) {
      this.mirror.drop(channel);
      this.#options.events.onLost(channel);
    }
  }

  #ready(attempt: number, host: InitializeResult | undefined): void {
    if (attempt !== this.#attempt) return;
    this.#failures = 0;
    this.#online = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#watch(attempt), WATCH_INTERVAL_MS);
    this.#options.events.onStatus({ kind: 'online' });
    this.#options.events.onReady(host);
  }

  #handshakeFailed(attempt: number, error: unknown): void {
    if (attempt !== this.#attempt) return;
    if (error instanceof RpcError && error.code === UNSUPPORTED_VERSION) {
      this.stop();
      this.#options.events.onStatus({ kind: 'incompatible', message: error.message });
      return;
    }
    this.#ended(attempt, true);
  }

  /** Checks for silence: a socket can be dead for minutes before the browser reports it. */
  #watch(attempt: number): void {
    const peer = this.#peer;
    if (attempt !== this.#attempt || !peer) return;
    const silence = Date.now() - peer.lastHeardAt;
    if (silence > GONE_AFTER_MS) {
      this.#ended(attempt, true);
      return;
    }
    // The response only breaks the silence; a failure shows as silence.
    if (silence > PING_AFTER_MS) peer.request('ping', { channel: ROOT }).catch(() => {});
    this.#timer = setTimeout(() => this.#watch(attempt), WATCH_INTERVAL_MS);
  }

  #ended(attempt: number, opened: boolean): void {
    if (attempt !== this.#attempt) return;
    this.stop();
    if (opened) {
      this.#waitAndRetry();
      return;
    }
    const after = this.#attempt;
    this.#options.probe().then((reachable) => {
      if (after !== this.#attempt || this.#peer) return;
      this.#refusals = reachable ? this.#refusals + 1 : 0;
      if (this.#refusals >= REFUSALS_THAT_COUNT) this.#options.events.onStatus({ kind: 'refused' });
      else this.#waitAndRetry();
    });
  }

  #waitAndRetry(): void {
    const pause = Math.min(FIRST_RETRY_MS * 2 ** this.#failures, LONGEST_RETRY_MS);
    this.#failures++;
    this.#timer = setTimeout(() => this.#connect(), pause);
    this.#options.events.onStatus({ kind: 'waiting', retryAt: Date.now() + pause });
  }

  #notified(method: string, params: Record<string, unknown>): void {
    if (method === 'action') this.#received(params as unknown as ActionEnvelope);
    else this.#options.events.onNotification(method, params);
  }

  #received(envelope: ActionEnvelope): void {
    if (typeof envelope.action?.type !== 'string' || typeof envelope.serverSeq !== 'number') return;
    this.#lastSeenSeq = Math.max(this.#lastSeenSeq, envelope.serverSeq);
    const changed = this.mirror.apply(envelope);
    if (envelope.origin?.clientId === this.#options.clientId) {
      this.#options.events.onEcho(envelope.origin.clientSeq, envelope.rejectionReason);
    } else if (changed && envelope.origin) {
      this.#options.events.onOthersAction(envelope);
    }
    if (changed) this.#options.events.onChange(envelope.channel);
  }
}
