// The address that an input request wants the user to visit. It is opened only by a click, in a new tab.

import { oneLine } from '../../format';

/** The characters of an address that are shown. */
const ADDRESS_CHARACTERS = 2_000;

export function RequestAddress({ address }: { address: string }) {
  const url = webAddress(address);
  if (!url) return <p class="question-address">{oneLine(address, ADDRESS_CHARACTERS)}</p>;
  return (
    <p class="question-address">
      <a href={url.href} target="_blank" rel="noopener noreferrer">
        {oneLine(url.href, ADDRESS_CHARACTERS)}
      </a>
      <span class="hint">Opens {oneLine(url.host)} in a new tab. Nothing is opened until you click.</span>
    </p>
  );
}

/** The address, if it is a web address. The parsed form has no look-alike characters in its host. */
function webAddress(address: string): URL | undefined {
  try {
    const url = new URL(address);
    return /^https?:$/.test(url.protocol) ? url : undefined;
  } catch {
    return undefined;
  }
}
