// Pages that are connected to a fake host over a real socket.

import { effect } from '@preact/signals';
import WebSocket from 'ws';

import { Page } from '../../src/page';
import type { FakeHost } from '../fake-host.mjs';

export async function openPage(host: FakeHost, clientId = 'me'): Promise<Page> {
  const page = new Page({
    clientId,
    openSocket: () => new WebSocket(host.socketUrl),
    probe: () => Promise.resolve(false),
    schedule: (publish) => publish(),
  });
  page.start();
  await when(() => page.status.value.kind === 'online');
  return page;
}

/** Resolves when the predicate, which reads signals, becomes true. */
export function when(predicate: () => boolean): Promise<void> {
  return new Promise((resolve) => {
    let stop: (() => void) | undefined;
    let done = false;
    stop = effect(() => {
      if (done || !predicate()) return;
      done = true;
      queueMicrotask(() => {
        stop?.();
        resolve();
      });
    });
  });
}
