// @vitest-environment jsdom

// The queue and the actions of errors in a document, against a host over a real socket.

import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { BackgroundPanel } from '../../src/components/BackgroundPanel';
import { QueuePanel } from '../../src/components/QueuePanel';
import { FakeHost } from '../fake-host.mjs';
import { when } from './open-page';
import { closeWindow, dispatched, openWindow, type PageWindow } from './page-window';

let host: FakeHost;
let shown: PageWindow;
let place: HTMLElement;

beforeEach(async () => {
  host = await new FakeHost().listen();
  shown = await openWindow(host, 'me');
  place = document.body.appendChild(document.createElement('div'));
});
afterEach(async () => {
  render(null, place);
  place.remove();
  closeWindow(shown);
  await host.close();
});

const chat = () => shown.page.chat.value!.resource;
const named = (name: string) => place.querySelector<HTMLButtonElement>(`button[aria-label="${name}"]`);

async function start(script: string): Promise<void> {
  await shown.page.send(`#demo\n${script}`, undefined);
  await when(() => shown.page.running.value || shown.page.chat.value?.turns.length === 1);
}

it('names every button of a queued message, and the ends of the queue cannot be moved further', async () => {
  await start('wait 60000');
  await act(() => render(<QueuePanel page={shown.page} />, place));
  await shown.page.send('alpha', undefined, 'queued');
  await shown.page.send('beta', undefined, 'queued');
  await vi.waitFor(() => expect(place.querySelectorAll('[data-queued]')).toHaveLength(2));
  const labels = [...place.querySelectorAll('[data-queued]')].map((entry) =>
    [...entry.querySelectorAll('button')].map((each) => each.getAttribute('aria-label')),
  );
  expect(labels[0]).toEqual([
    'Steer with “alpha”',
    'Send “alpha” now',
    'Move “alpha” up',
    'Move “alpha” down',
    'Edit “alpha”',
    'Remove “alpha”',
  ]);
  expect([named('Move “alpha” up'), named('Move “beta” down')].map((each) => each?.disabled)).toEqual([true, true]);
  await act(() => named('Move “alpha” down')?.click());
  await vi.waitFor(() => expect(named('Move “alpha” down')?.disabled).toBe(true));
  expect(dispatched(host, 'chat/queuedMessagesReordered')).toHaveLength(1);
});

it('shows a message and background work without the expected fields', async () => {
  await start('wait 60000');
  await act(() =>
    render(
      <>
        <QueuePanel page={shown.page} />
        <BackgroundPanel page={shown.page} />
      </>,
      place,
    ),
  );
  host.publish(chat(), { type: 'chat/pendingMessageSet', kind: 'queued', id: 'q', message: null });
  host.publish(chat(), { type: 'chat/backgroundWorkSet', work: { kind: 'odd', id: 'w', label: 7, startedAt: 'never' } });
  await vi.waitFor(() => expect(place.textContent).toContain('Queue: 1'));
  await vi.waitFor(() => expect(place.textContent).toContain('Unnamed work'));
  expect(named('Remove “”')).not.toBeNull();
});

it('offers actions only for the newest error of a turn that was resumed and failed again', async () => {
  const part = { kind: 'error', error: { errorType: 'overloaded', message: 'Later' }, resumable: true };
  await start(`fail ${JSON.stringify(part)}`);
  await vi.waitFor(() => expect(shown.place.querySelectorAll('.error-actions')).toHaveLength(1));
  const turnId = shown.page.failedTurn.value!;
  host.publish(chat(), { type: 'chat/turnResume', turnId });
  await vi.waitFor(() => expect(shown.place.querySelectorAll('.error-actions')).toHaveLength(0));
  host.publish(chat(), { type: 'chat/error', turnId, duration: 1, part });
  await vi.waitFor(() => expect(shown.place.querySelectorAll('.error-actions')).toHaveLength(1));
  expect(shown.place.querySelectorAll('.error-card')).toHaveLength(2);
  const buttons = [...shown.place.querySelectorAll('.error-actions button')].map((each) => each.textContent);
  expect(buttons).toEqual(['Resume', 'Edit message']);
});
