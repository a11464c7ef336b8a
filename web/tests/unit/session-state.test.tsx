// @vitest-environment jsdom

// The permission mode, the to-do list and the row of a session, against a host over a real socket.

import { signal } from '@preact/signals';
import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { Composer } from '../../src/components/Composer';
import { NewSession } from '../../src/components/NewSession';
import { Sidebar } from '../../src/components/Sidebar';
import { TodoPanel } from '../../src/components/TodoPanel';
import { todoList } from '../../src/host-metadata';
import type { Page } from '../../src/page';
import { modeSetting } from '../../src/permission-mode';
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

const picker = () => place.querySelector<HTMLButtonElement>('.mode-button');
const items = () => [...place.querySelectorAll<HTMLButtonElement>('[role=menuitemradio]')];
const key = (name: string) =>
  act(() => {
    document.activeElement?.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
  });

async function start(script: string): Promise<void> {
  await page.send(`#demo\n${script}`, undefined);
  await when(() => page.chat.value?.activeTurn !== undefined || page.chat.value?.turns.length === 1);
}

it('shows the mode of the session and changes it, also while a turn runs', async () => {
  await start('text Begin\nwait 60000');
  await act(() => render(<Composer page={page} />, place));
  expect(picker()?.textContent).toBe('Ask first');
  await act(() => picker()?.click());
  expect(items().map((item) => item.getAttribute('aria-checked'))).toEqual(['true', 'false', 'false', 'false']);
  expect(items()[2]?.textContent).toBe('PlanReads and writes a plan; changes nothing until you approve the plan.');
  await act(() => items()[2]?.click());
  await vi.waitFor(() => expect(picker()?.textContent).toBe('Plan'));
  expect(dispatched(host, 'session/configChanged')).toEqual([{ type: 'session/configChanged', config: { permissionMode: 'plan' } }]);
  expect(items()).toEqual([]);
});

it('moves through the modes with the keyboard without choosing them', async () => {
  await start('text Begin');
  await act(() => render(<Composer page={page} />, place));
  await act(() => picker()?.click());
  await vi.waitFor(() => expect(document.activeElement).toBe(items()[0]));
  await key('ArrowUp');
  expect(document.activeElement).toBe(items()[3]);
  await key('ArrowDown');
  await key('ArrowDown');
  expect(document.activeElement).toBe(items()[1]);
  await key('Escape');
  expect(items()).toEqual([]);
  expect(document.activeElement).toBe(picker());
  expect(dispatched(host, 'session/configChanged')).toEqual([]);
});

it('says so when the host refuses a mode, and follows a mode that the host changed', async () => {
  await start('text Begin');
  await act(() => render(<Composer page={page} />, place));
  host.rejectNext = 'Not as root';
  page.changeMode('bypassPermissions');
  await when(() => page.notices.value.length > 0);
  expect(page.notices.value[0]?.text).toContain('Not as root');
  expect(picker()?.textContent).toBe('Ask first');
  host.publish(page.selected.value!, { type: 'session/configChanged', config: { permissionMode: 'acceptEdits' } });
  await vi.waitFor(() => expect(picker()?.textContent).toBe('Accept edits'));
});

it('is disabled when the host does not allow a change, and absent without modes', async () => {
  await start('text Begin');
  const session = host.sessions.get(page.selected.value!)!;
  const property = session.state.config!.schema.properties['permissionMode']!;
  delete property.sessionMutable;
  const uri = page.selected.value;
  page.select(undefined);
  page.select(uri);
  await when(() => page.session.value !== undefined);
  await act(() => render(<Composer page={page} />, place));
  expect(picker()?.disabled).toBe(true);
  expect(picker()?.title).toBe('The host does not allow to change the mode');
  delete session.state.config;
  page.select(undefined);
  page.select(uri);
  await when(() => page.session.value !== undefined);
  await vi.waitFor(() => expect(picker()).toBeNull());
});

it('creates a session in the mode that was chosen before, once', async () => {
  await act(() => render(<NewSession page={page} />, place));
  await vi.waitFor(() => expect(picker()?.textContent).toBe('Ask first'));
  await act(() => picker()?.click());
  await act(() => items()[1]?.click());
  await vi.waitFor(() => expect(picker()?.textContent).toBe('Accept edits'));
  await page.send('hello', undefined);
  expect(host.received.find((each) => each.method === 'createSession')?.params['config']).toEqual({ permissionMode: 'acceptEdits' });
  await when(() => page.session.value !== undefined);
  expect(modeSetting(page.session.value?.config)?.current?.label).toBe('Accept edits');
  page.select(undefined);
  expect(page.newModes.value?.current?.label).toBe('Ask first');
});

it.each([
  [{ schema: null, values: null }, undefined],
  [{ schema: { properties: { permissionMode: { enum: 'x' } } }, values: {} }, undefined],
  [{ schema: { properties: { permissionMode: { enum: [7, 'a'], enumLabels: 'x' } } }, values: { permissionMode: 'b' } }, 'b'],
])('takes the configuration %o', (config, current) => {
  expect(modeSetting(config as never)?.current?.label).toBe(current);
});

it('shows the to-do list with its progress, and removes it after it is finished', async () => {
  const list = (first: string, second: string) =>
    JSON.stringify([
      { text: 'Read the code', status: first },
      { text: 'Write a test', status: second },
    ]);
  await act(() => render(<TodoPanel page={page} />, place));
  await start(
    `todo ${list('completed', 'in_progress')}\npermit ${JSON.stringify({ toolName: 'A', title: 'A?', message: '', input: 'a' })}`,
  );
  await vi.waitFor(() => expect(place.querySelector('summary')?.textContent).toBe('To do: 1 of 2 doneWrite a test'));
  expect([...place.querySelectorAll('li')].map((item) => item.className)).toEqual(['is-done', 'is-current']);
  page.stopTurn();
  await when(() => page.chat.value?.turns.length === 1);
  expect(place.querySelector('.todo')).not.toBeNull();
  await page.send(`#demo\ntodo ${list('completed', 'completed')}`, undefined);
  await when(() => page.chat.value?.turns.length === 2);
  await vi.waitFor(() => expect(place.querySelector('.todo')).toBeNull());
});

it.each([
  [{ done: 7, total: 9 }, 7, 9],
  [{}, 1, 2],
  [{ done: 'x', total: -1 }, 1, 2],
  [{ done: 5, total: 1 }, 5, 5],
])('counts the items of a to-do list with %o', (counts, done, total) => {
  const items = [{ text: 'One', status: 'completed' }, { text: 'Two' }];
  const session = { _meta: { 'innkeeper.todo': { 'ahp-chat:/c': { items, ...counts } } } };
  expect(todoList(session as never, 'ahp-chat:/c')).toMatchObject({ done, total });
});

it.each([7, { items: 7 }, { items: [] }])('shows no to-do list for %o', (value) => {
  const session = { _meta: { 'innkeeper.todo': { 'ahp-chat:/c': value } } };
  expect(todoList(session as never, 'ahp-chat:/c')).toBeUndefined();
});

it('shows since when a session waits, and the progress of its to-do list', async () => {
  render(<Sidebar page={page} open={signal(false)} />, place);
  await start(`permit ${JSON.stringify({ toolName: 'A', title: 'A?', message: '', input: 'a' })}`);
  await vi.waitFor(() => expect(place.querySelector('.row-detail')?.textContent).toMatch(/^Waiting for you · /));
  const _meta = { 'innkeeper.waitingSince': new Date(Date.now() - 300_000).toISOString(), 'innkeeper.todo': { done: 2, total: 5 } };
  host.notifyRoot('root/sessionSummaryChanged', { session: page.selected.value, changes: { _meta } });
  await vi.waitFor(() => expect(place.querySelector('.row-detail')?.textContent).toMatch(/^Waiting for you since 5 min · 2\/5 done · /));
});

it('points to the open request from the composer', async () => {
  await start(`permit ${JSON.stringify({ toolName: 'A', title: 'A?', message: '', input: 'a' })}`);
  page.draft(page.selected.value, 'more');
  await act(() => render(<Composer page={page} />, place));
  await vi.waitFor(() => expect(place.querySelector('#composer-hint')?.textContent).toContain('Go to the request'));
  expect(place.querySelector<HTMLButtonElement>('.send')?.textContent).toBe('Steer');
});
