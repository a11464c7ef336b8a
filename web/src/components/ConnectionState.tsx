// The state of the connection: always a badge, a line when it is lost, a card when the user has to act.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

import { hasToken } from '../identity';
import type { Page } from '../page';

export function ConnectionBadge({ page }: { page: Page }) {
  const status = page.status.value;
  const info = page.host.value?.serverInfo;
  const name = info ? [info.title ?? info.name, info.version].filter(Boolean).join(' ') : 'the host';
  const words = {
    online: `Connected to ${name}`,
    connecting: 'Connecting…',
    waiting: 'Not connected',
    refused: 'Not admitted',
    incompatible: 'Host not understood',
  };
  return (
    <div class={`badge is-${status.kind}`} role="status" data-connection={status.kind}>
      <span class="badge-dot" aria-hidden="true" />
      {words[status.kind]}
    </div>
  );
}

/** Shown only after an established connection was lost; the content of the page stays readable. */
export function ConnectionLine({ page }: { page: Page }) {
  const status = page.status.value;
  const lost = status.kind === 'waiting' || (status.kind === 'connecting' && page.host.value !== undefined);
  if (!lost) return null;
  return (
    <div class="line" role="alert">
      <span>
        {page.host.value ? 'The connection to the host was lost.' : 'The host does not answer.'}{' '}
        {status.kind === 'waiting' ? <Countdown until={status.retryAt} /> : 'Trying again…'}
      </span>
      <button type="button" class="text-button" onClick={() => page.retryNow()}>
        Try now
      </button>
    </div>
  );
}

function Countdown({ until }: { until: number }) {
  const now = useSignal(Date.now());
  useEffect(() => {
    const timer = setInterval(() => (now.value = Date.now()), 500);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.ceil((until - now.value) / 1000);
  return <>{seconds > 1 ? `Trying again in ${seconds} s.` : 'Trying again…'}</>;
}

export function Refused({ page, address }: { page: Page; address: URL }) {
  const status = page.status.value;
  return (
    <div class="center">
      <div class="card" role="alert">
        {status.kind === 'incompatible' ? <VersionHint message={status.message} /> : <TokenHint address={address} />}
        <button type="button" class="primary" onClick={() => page.retryNow()}>
          Try again
        </button>
      </div>
    </div>
  );
}

function TokenHint({ address }: { address: URL }) {
  const example = `${address.origin}/?tkn=…`;
  return (
    <>
      <h1>{hasToken(address) ? 'The host does not accept this token' : 'This address has no token'}</h1>
      <p>
        The host lets a page in only with its token. Open the address that the host printed when it started; it looks like{' '}
        <code>{example}</code>
      </p>
      <p class="quiet">
        {hasToken(address)
          ? 'A token stops working when the host was started with another one, or with another data directory.'
          : 'The part after the question mark is easily lost when an address is typed or shortened.'}
      </p>
    </>
  );
}

function VersionHint({ message }: { message: string }) {
  return (
    <>
      <h1>The host speaks another version of the protocol</h1>
      <p>{message}</p>
      <p class="quiet">Reload the page without its cache; if that does not help, update the host.</p>
    </>
  );
}
