// A page that shows the turns of its session in a document, against a fake host over a real socket.

import { render } from 'preact';
import { act } from 'preact/test-utils';

import { PageContext } from '../../src/components/page-context';
import { TurnView } from '../../src/components/TurnView';
import type { Page } from '../../src/page';
import type { FakeHost } from '../fake-host.mjs';
import { openPage } from './open-page';

export interface PageWindow {
  page: Page;
  place: HTMLElement;
}

export async function openWindow(host: FakeHost, clientId: string): Promise<PageWindow> {
  const page = await openPage(host, clientId);
  const place = document.body.appendChild(document.createElement('div'));
  render(<Turns page={page} />, place);
  return { page, place };
}

export function closeWindow({ page, place }: PageWindow): void {
  // Effects are cleaned up later otherwise, when the document is gone.
  void act(() => render(null, place));
  place.remove();
  page.stop();
}

function Turns({ page }: { page: Page }) {
  const chat = page.chat.value;
  const turns = [...(chat?.turns ?? []), ...(chat?.activeTurn ? [chat.activeTurn] : [])];
  return (
    <PageContext.Provider value={page}>
      {turns.map((turn) => (
        <TurnView key={turn.id} turn={turn} />
      ))}
    </PageContext.Provider>
  );
}

export function button({ place }: PageWindow, name: string): HTMLButtonElement {
  return [...place.querySelectorAll('button')].find((each) => each.textContent === name) as HTMLButtonElement;
}

/** Types without moving the focus, which all windows of a test share. */
export async function type(box: HTMLTextAreaElement | HTMLInputElement, text: string): Promise<void> {
  box.value = text;
  await act(() => {
    box.dispatchEvent(new Event('input', { bubbles: true }));
  });
}

/** The actions of a type that clients dispatched. */
export function dispatched(host: FakeHost, type: string): any[] {
  return host.received
    .filter((each) => each.method === 'dispatchAction')
    .map((each) => each.params['action'])
    .filter((each) => each.type === type);
}
