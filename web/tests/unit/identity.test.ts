import { expect, it, vi } from 'vitest';

import { claimClientId, socketAddress, uuid } from '../../src/identity';

function storage(): Storage {
  const items = new Map<string, string>();
  return {
    getItem: (key: string) => items.get(key) ?? null,
    setItem: (key: string, value: string) => void items.set(key, value),
  } as unknown as Storage;
}

/** Locks as a browser keeps them: held until the page that took them goes away. */
function locks(): LockManager {
  const held = new Set<string>();
  return {
    request: async (name: string, _options: LockOptions, granted: (lock: Lock | null) => unknown) => {
      if (held.has(name)) return granted(null);
      held.add(name);
      return granted({ name, mode: 'exclusive' });
    },
  } as unknown as LockManager;
}

it('opens the socket at the host of the page, with its token and nothing else of its address', () => {
  const address = (page: string) => socketAddress(new URL(page));
  expect(address('http://127.0.0.1:7433/?tkn=a%2Bb#claude%3A%2Fx')).toBe('ws://127.0.0.1:7433/?tkn=a%2Bb');
  expect(address('https://inn.example/sub/?tkn=t&x=1')).toBe('wss://inn.example/?tkn=t');
  expect(address('http://localhost:1/')).toBe('ws://localhost:1/');
});

it('keeps its id over a reload, and takes another one in a duplicated tab', async () => {
  const tab = storage();
  const first = await claimClientId(tab, locks());
  expect(await claimClientId(tab, locks())).toBe(first);
  expect(await claimClientId(tab, undefined)).toBe(first);
  const shared = locks();
  const original = await claimClientId(tab, shared);
  expect(await claimClientId(tab, shared)).not.toBe(original);
});

it('makes version 4 ids also without a secure context', () => {
  vi.stubGlobal('crypto', { getRandomValues: (bytes: Uint8Array) => bytes.fill(0xff) });
  expect(uuid()).toBe('ffffffff-ffff-4fff-bfff-ffffffffffff');
  vi.unstubAllGlobals();
});
