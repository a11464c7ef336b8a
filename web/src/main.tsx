// Creates the page: client id, socket address, and the element it is rendered into.

import { effect } from '@preact/signals';
import { render } from 'preact';

import { App } from './components/App';
import { claimClientId, socketAddress } from './identity';
import { Page } from './page';
import './style.css';

/** How often a hidden tab publishes changes: it gets no animation frames. */
const HIDDEN_PUBLISH_MS = 200;
const PROBE_TIMEOUT_MS = 3_000;

async function main(): Promise<void> {
  const address = new URL(location.href);
  const page = new Page({
    clientId: await claimClientId(sessionStorage, navigator.locks),
    openSocket: () => new WebSocket(socketAddress(address)),
    probe,
    schedule: (publish) => {
      if (document.hidden) setTimeout(publish, HIDDEN_PUBLISH_MS);
      else requestAnimationFrame(publish);
    },
  });
  keepSelectionInAddress(page);
  page.start();
  window.addEventListener('online', () => page.retryWaiting());
  document.addEventListener('visibilitychange', () => {
    if (!document.hidden) page.retryWaiting();
  });
  const place = document.getElementById('page');
  if (place) render(<App page={page} address={address} />, place);
}

async function probe(): Promise<boolean> {
  try {
    const answer = await fetch(new URL('/healthz', location.href), { signal: AbortSignal.timeout(PROBE_TIMEOUT_MS) });
    return answer.ok;
  } catch {
    return false;
  }
}

/** The shown session is in the address after `#`, so that reload, back and bookmarks work. */
function keepSelectionInAddress(page: Page): void {
  page.select(fromAddress());
  window.addEventListener('popstate', () => page.select(fromAddress()));
  effect(() => {
    const selected = page.selected.value;
    if (selected === fromAddress()) return;
    const hash = selected === undefined ? '' : `#${encodeURIComponent(selected)}`;
    history.pushState(null, '', `${location.pathname}${location.search}${hash}`);
  });
}

function fromAddress(): string | undefined {
  try {
    return decodeURIComponent(location.hash.slice(1)) || undefined;
  } catch {
    // The address is truncated and does not name a session.
    return undefined;
  }
}

main().catch((error: unknown) => console.error('innkeeper: the page could not start', error));
