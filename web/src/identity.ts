// The identity of this page: the token from its address, and a client id that survives a reload.

const CLIENT_ID_KEY = 'innkeeper.clientId';

/** The address of the host's socket: the page's own address, with its token. */
export function socketAddress(page: URL): string {
  const socket = new URL('/', page);
  socket.protocol = page.protocol === 'https:' ? 'wss:' : 'ws:';
  const token = page.searchParams.get('tkn');
  if (token !== null) socket.searchParams.set('tkn', token);
  return socket.href;
}

export function hasToken(page: URL): boolean {
  return page.searchParams.has('tkn');
}

/** A random UUID; `crypto.randomUUID` is missing where the page is served over plain HTTP to another machine. */
export function uuid(): string {
  if (typeof crypto.randomUUID === 'function') return crypto.randomUUID();
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6]! & 0x0f) | 0x40;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}

/**
 * The id of this tab, the same after a reload. A duplicated tab starts with a copy of the other's storage, and
 * two clients with one id would take each other's echoes, so the id is held with a lock where there are locks.
 */
export async function claimClientId(storage: Storage, locks: LockManager | undefined): Promise<string> {
  const remembered = storage.getItem(CLIENT_ID_KEY);
  if (remembered !== null && (await hold(locks, remembered))) return remembered;
  const fresh = `page-${uuid()}`;
  storage.setItem(CLIENT_ID_KEY, fresh);
  await hold(locks, fresh);
  return fresh;
}

function hold(locks: LockManager | undefined, clientId: string): Promise<boolean> {
  if (!locks) return Promise.resolve(true);
  return new Promise((resolve) => {
    locks
      .request(`innkeeper.client.${clientId}`, { ifAvailable: true }, (lock) => {
        resolve(lock !== null);
        // The lock is released when the page is closed, so this promise never resolves.
        return lock === null ? undefined : new Promise<void>(() => {});
      })
      .catch(() => resolve(true));
  });
}
