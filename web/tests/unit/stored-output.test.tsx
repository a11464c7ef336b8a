// @vitest-environment jsdom

// Stored output in the page, against a host over a real socket.

import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type { ResponsePart, Turn } from '../../src/ahp/types';
import { PageContext } from '../../src/components/page-context';
import { TurnView } from '../../src/components/TurnView';
import type { Page } from '../../src/page';
import { FakeHost } from '../fake-host.mjs';
import { openPage } from './open-page';
import { closeWindow } from './page-window';

let host: FakeHost;
let page: Page;
let place: HTMLElement;

beforeEach(async () => {
  host = await new FakeHost().listen();
  page = await openPage(host);
  place = document.body.appendChild(document.createElement('div'));
});
afterEach(async () => {
  closeWindow({ page, place });
  await host.close();
});

async function show(part: unknown): Promise<void> {
  const message = { text: 'Hello', origin: { kind: 'user' } };
  const turn: Turn = { id: 't', message, responseParts: [part as ResponsePart], state: 'complete' };
  await act(() =>
    render(
      <PageContext.Provider value={page}>
        <TurnView turn={turn} />
      </PageContext.Provider>,
      place,
    ),
  );
}

function buttons(): HTMLButtonElement[] {
  return [...place.querySelectorAll('button')];
}

it('shows a page of a long answer as Markdown on request', async () => {
  host.resources.set('innkeeper-output:/1', { data: 'A **bold** page', encoding: 'utf-8' });
  await show({ kind: 'contentRef', uri: 'innkeeper-output:/1', sizeHint: 1_048_576, contentType: 'text/markdown' });
  const [button] = buttons();
  expect(button?.textContent).toBe('Show 1.0 MB of text/markdown');
  expect(host.received.some((each) => each.method === 'resourceRead')).toBe(false);
  await act(() => button?.click());
  await vi.waitFor(() => expect(place.querySelector('.markdown strong')?.textContent).toBe('bold'));
});

it('shows the complete input and result of a tool call on request', async () => {
  const input = { uri: 'innkeeper-output:/in', sizeHint: 900 };
  const result = { type: 'resource', uri: 'innkeeper-output:/out', sizeHint: 2_000, contentType: 'text/plain' };
  host.resources.set(input.uri, { data: '{"command":"ls"}', encoding: 'utf-8' });
  // A result with many control characters.
  host.resources.set(result.uri, { data: btoa('\u0001'.repeat(2_000)), encoding: 'base64' });
  const content = [{ type: 'text', text: 'head [… 9 bytes omitted …] tail' }, result];
  const call = { status: 'completed', success: true, toolCallId: 'c', toolName: 'b', displayName: 'B', toolInput: input, content };
  await show({ kind: 'toolCall', toolCall: call });
  expect(buttons().map((button) => button.textContent)).toEqual(['Show 900 bytes', 'Show 2 kB of text/plain']);
  expect(place.textContent).toContain('head [… 9 bytes omitted …] tail');
  for (const button of buttons()) await act(() => button.click());
  await vi.waitFor(() => expect(place.textContent).toContain('\u0001'.repeat(2_000)));
  expect(place.textContent).toContain('{"command":"ls"}');
});

it.each([
  ['missing', undefined, 'does not exist'],
  ['not text', { data: btoa('\u00ff\u00fe'), encoding: 'base64' }, 'it is not text'],
])('says why content that is %s cannot be shown', async (_, stored, reason) => {
  if (stored) host.resources.set('innkeeper-output:/1', stored);
  await show({ kind: 'contentRef', uri: 'innkeeper-output:/1' });
  expect(buttons()[0]?.textContent).toBe('Show content');
  await act(() => buttons()[0]?.click());
  await vi.waitFor(() => expect(place.textContent).toContain(reason));
});
