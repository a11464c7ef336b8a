// @vitest-environment jsdom

// The actions about a failed turn, against a host over a real socket.

import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type { ErrorPart } from '../../src/ahp/types';
import { ErrorActions } from '../../src/components/parts/ErrorActions';
import type { Page } from '../../src/page';
import { FakeHost } from '../fake-host.mjs';
import { openPage, when } from './open-page';
import { closeWindow, dispatched } from './page-window';

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

it.each([
  ['Resume', true, 'chat/turnResume', 1],
  ['Retry', false, 'chat/turnStarted', 2],
] as const)('%s is dispatched once however often it is clicked', async (name, resumable, type, count) => {
  const part = { error: { errorType: 'overloaded', message: 'Later' }, resumable };
  await page.send(`#demo\nfail ${JSON.stringify(part)}`, undefined);
  await when(() => page.failedTurn.value !== undefined);
  await act(() => render(<ErrorActions page={page} part={{ kind: 'error', ...part } as ErrorPart} />, place));
  const button = [...place.querySelectorAll('button')].find((each) => each.textContent === name)!;
  // The host does not answer, so that the first click stays pending.
  host.deaf = true;
  for (let click = 0; click < 3; click++) await act(() => button.click());
  await new Promise((resolve) => setTimeout(resolve, 50));
  await act(() => button.click());
  expect(button.getAttribute('aria-disabled')).toBe('true');
  await vi.waitFor(() => expect(dispatched(host, type).length).toBeGreaterThanOrEqual(count));
  await page.readResource('file:///none').catch(() => undefined);
  expect(dispatched(host, type)).toHaveLength(count);
});
