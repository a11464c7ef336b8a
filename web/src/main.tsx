// Puts the page together: who it is, how it reaches the host, and where it is drawn.

import { effect } from '@preact/signals';
import { render } from 'preact';

import { App } from './components/App';
import { claimClientId, socketAddress } from './identity';
import { Page } from './page';
import './style.css';

/** How often a hidden tab takes over what arrived: it gets no animation frames. */
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

/** The shown session stands behind the `#`, so that reloading, going back and bookmarks work. */
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
    // Somebody cut the address short; that names no session.
    return undefined;
  }
}

main().catch((error: unknown) => console.error('innkeeper: the page could not start', error));
