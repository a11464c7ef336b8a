// A proxy between VS Code and the host that records every message.

import { once } from 'node:events';

import { WebSocket, WebSocketServer } from 'ws';

import { until } from './wait.mjs';

/** Bounds the recording; a scenario needs a few thousand messages. */
const MESSAGES_KEPT = 50_000;

export class Wire {
  #server;
  #target;
  #connections = 0;
  /** Every message: `at` in milliseconds, `connection`, `from` (`client` or `host`) and `message`. */
  messages = [];

  /** Starts a proxy to a host's WebSocket address, which has no query. */
  static async start(target) {
    const wire = new Wire();
    wire.connectTo(target);
    wire.#server = new WebSocketServer({ host: '127.0.0.1', port: 0 });
    wire.#server.on('connection', (client, request) => wire.#join(client, request.url));
    await once(wire.#server, 'listening');
    return wire;
  }

  /** Sets the host for later connections. */
  connectTo(target) {
    this.#target = target.replace(/\/$/, '');
  }

  get port() {
    return this.#server.address().port;
  }

  #join(client, path) {
    const connection = ++this.#connections;
    const host = new WebSocket(`${this.#target}${path}`);
    const opened = once(host, 'open').catch(() => client.terminate());
    const record = (from, text) => {
      if (this.messages.length < MESSAGES_KEPT) {
        this.messages.push({ at: Math.round(performance.now()), connection, from, message: JSON.parse(text) });
      }
    };
    // The order of messages is kept: each waits for the same promise.
    client.on('message', async (data) => {
      const text = data.toString();
      record('client', text);
      await opened;
      if (host.readyState === WebSocket.OPEN) host.send(text);
    });
    host.on('message', (data) => {
      const text = data.toString();
      record('host', text);
      client.send(text);
    });
    for (const [socket, other] of [
      [client, host],
      [host, client],
    ]) {
      socket.on('error', () => {});
      socket.on('close', () => other.terminate());
    }
  }

  /** The actions of one type, oldest first: those that the client dispatched or that the host published. */
  actions(from, type) {
    return this.messages
      .filter((entry) => entry.from === from && entry.message.params?.action?.type === type)
      .map((entry) => entry.message.params.action);
  }

  /** The parameters of the notifications with this method, oldest first. */
  notices(from, method) {
    return this.#sent(from, method)
      .filter((message) => message.id === undefined)
      .map((message) => message.params);
  }

  /** The parameters of the requests with this method, oldest first. */
  requests(from, method) {
    return this.#sent(from, method)
      .filter((message) => message.id !== undefined)
      .map((message) => message.params);
  }

  #sent(from, method) {
    return this.messages.filter((entry) => entry.from === from && entry.message.method === method).map((entry) => entry.message);
  }

  /** The files of the changeset that was subscribed last among those that `matches` accepts, as the host published them. */
  changeset(matches) {
    let channel;
    let files;
    for (const { from, message } of this.messages) {
      const snapshot = from === 'host' ? message.result?.snapshot : undefined;
      if (snapshot && matches(snapshot.resource)) {
        channel = snapshot.resource;
        files = new Map(snapshot.state.files.map((file) => [file.id, file]));
      }
      const action = files && from === 'host' && message.params?.channel === channel ? message.params.action : undefined;
      if (action?.type === 'changeset/contentChanged') files = new Map(action.files.map((file) => [file.id, file]));
      if (action?.type === 'changeset/fileSet') files.set(action.file.id, action.file);
      if (action?.type === 'changeset/fileRemoved') files.delete(action.fileId);
    }
    return files && [...files.values()];
  }

  /** Waits for an action for which `matches` is true, and returns the first one. */
  action(from, type, matches = () => true, milliseconds = undefined) {
    return until(() => this.actions(from, type).find(matches), `${type} from the ${from}`, milliseconds);
  }

  /** Waits until the host answered a request of the client, and returns the result. */
  async result(method) {
    const answer = await until(() => this.#answers(method)[0], `an answer to ${method}`);
    if (answer.error) throw new Error(`${method} failed: ${JSON.stringify(answer.error)}`);
    return answer.result;
  }

  #answers(method) {
    const requests = this.messages.filter((entry) => entry.from === 'client' && entry.message.method === method);
    return requests.flatMap((request) =>
      this.messages
        .filter((entry) => entry.from === 'host' && entry.connection === request.connection && entry.message.id === request.message.id)
        .filter((entry) => 'result' in entry.message || 'error' in entry.message)
        .map((entry) => entry.message),
    );
  }

  /** The recording as JSON lines. */
  text() {
    return this.messages.map((entry) => `${JSON.stringify(entry)}\n`).join('');
  }

  async close() {
    for (const client of this.#server.clients) client.terminate();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
