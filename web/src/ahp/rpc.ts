// JSON-RPC 2.0 over one socket: requests, responses and notifications, without their meaning.
// A peer lives as long as its socket; when the socket closes, every open request fails.

/**
 * The part of a WebSocket that is used, so that tests can provide their own. The event types differ:
 * the browser and Node have different types with the same fields.
 */
export interface SocketLike {
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  send(data: string): void;
  close(): void;
}

/** The host answered a request with an error. */
export class RpcError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly data?: unknown,
  ) {
    super(message);
    this.name = 'RpcError';
  }
}

/** The socket closed, or the host did not respond in time. */
export class ConnectionLost extends Error {
  constructor(message = 'The connection to the host was lost') {
    super(message);
    this.name = 'ConnectionLost';
  }
}

/** The timeout of a request. The host answers every request of the page from memory. */
const REQUEST_TIMEOUT_MS = 30_000;

const METHOD_NOT_FOUND = -32601;

interface OpenRequest {
  resolve(result: unknown): void;
  reject(error: Error): void;
  timer: ReturnType<typeof setTimeout>;
}

export class RpcPeer {
  /** When the last frame of any kind arrived. A dead connection is detected by silence. */
  lastHeardAt = Date.now();
  #socket: SocketLike;
  #open = new Map<number, OpenRequest>();
  #nextId = 1;
  #closed = false;
  #onNotification: (method: string, params: Record<string, unknown>) => void;

  constructor(socket: SocketLike, onNotification: (method: string, params: Record<string, unknown>) => void) {
    this.#socket = socket;
    this.#onNotification = onNotification;
    socket.onmessage = (event: { data: unknown }) => this.#receive(event.data);
  }

  /**
   * Sends a request. `onResult` runs while the response frame is processed, before any later frame: a
   * snapshot must be in place before the actions that follow it, which a promise does not guarantee.
   */
  request<T>(method: string, params: object, onResult: (result: T) => void = () => {}, timeoutMs = REQUEST_TIMEOUT_MS): Promise<T> {
    if (this.#closed) return Promise.reject(new ConnectionLost());
    const id = this.#nextId++;
    return new Promise<T>((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#open.delete(id);
        reject(new ConnectionLost(`The host did not answer “${method}” in time`));
      }, timeoutMs);
      this.#open.set(id, {
        resolve: (result) => {
          onResult(result as T);
          resolve(result as T);
        },
        reject,
        timer,
      });
      this.#send({ id, method, params });
    });
  }

  notify(method: string, params: object): void {
    if (!this.#closed) this.#send({ method, params });
  }

  /** Closes the peer. Can be called twice; the owner also calls it when the socket closes. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#socket.onmessage = null;
    this.#socket.close();
    for (const request of this.#open.values()) {
      clearTimeout(request.timer);
      request.reject(new ConnectionLost());
    }
    this.#open.clear();
  }

  #send(message: object): void {
    this.#socket.send(JSON.stringify({ jsonrpc: '2.0', ...message }));
  }

  #receive(data: unknown): void {
    this.lastHeardAt = Date.now();
    const message = parse(data);
    if (!message) {
      console.warn('innkeeper: a frame that is not a JSON-RPC message was ignored');
      return;
    }
    const { id, method } = message;
    if (typeof method === 'string') {
      const params = (message['params'] ?? {}) as Record<string, unknown>;
      if (id === undefined) this.#onNotification(method, params);
      // The host may request files from its clients; the page has none.
      else this.#send({ id, error: { code: METHOD_NOT_FOUND, message: `This client does not offer ${method}` } });
      return;
    }
    this.#settle(message);
  }

  #settle(message: Record<string, unknown>): void {
    const request = this.#open.get(message['id'] as number);
    if (!request) return;
    this.#open.delete(message['id'] as number);
    clearTimeout(request.timer);
    const error = message['error'] as { code?: number; message?: string; data?: unknown } | undefined;
    if (error) request.reject(new RpcError(Number(error.code), error.message ?? 'Unknown error', error.data));
    else request.resolve(message['result']);
  }
}

function parse(data: unknown): Record<string, unknown> | undefined {
  if (typeof data !== 'string') return undefined;
  try {
    const value: unknown = JSON.parse(data);
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}
