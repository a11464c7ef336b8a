// The page's state against a host over a real socket.

import { effect } from '@preact/signals';
import { afterEach, beforeEach, expect, it } from 'vitest';

import type { Page } from '../../src/page';
import { NEW } from '../../src/page/drafts';
import { FakeHost } from '../fake-host.mjs';
import { openPage, when } from './open-page';

let host: FakeHost;
let pages: Page[];

beforeEach(async () => {
  host = await new FakeHost().listen();
  pages = [];
});
afterEach(async () => {
  for (const page of pages) page.stop();
  await host.close();
});

async function open(clientId = 'me'): Promise<Page> {
  const page = await openPage(host, clientId);
  pages.push(page);
  return page;
}

const answered =
  (page: Page, turns = 1) =>
  () =>
    page.chat.value?.activeTurn === undefined && page.chat.value?.turns.length === turns;
const text = (page: Page) => JSON.stringify(page.chat.value?.activeTurn?.responseParts ?? '');
const requests = (method: string) => host.received.filter((message) => message.method === method);
const starts = () => requests('dispatchAction').filter((each) => each.params['action'].type === 'chat/turnStarted');

it('makes a session for the first message and shows what the host has', async () => {
  const page = await open();
  page.draft(undefined, 'hello');
  await page.send('hello', 'file:///inn');
  const session = page.selected.value!;
  expect(session).toMatch(/^claude:\/[0-9a-f-]{36}$/);
  expect(requests('createSession')[0]?.params).toEqual({
    channel: session,
    provider: 'claude',
    workingDirectories: ['file:///inn'],
  });
  expect(page.drafts.value.has(NEW)).toBe(false);
  await when(answered(page));
  expect(page.chat.value).toEqual(host.chatOf(session));
  expect(page.chat.value?.turns[0]?.message).toEqual({ text: 'hello', origin: { kind: 'user' } });
  expect(page.outgoing.value).toEqual([]);
  expect(page.rows.value.map((row) => [row.resource, row.title])).toEqual([[session, 'hello']]);
  expect(page.session.value?.lifecycle).toBe('ready');

  await page.send('again', undefined);
  await when(answered(page, 2));
  expect(requests('createSession')).toHaveLength(1);
  expect(page.chat.value).toEqual(host.chatOf(session));
});

it('shows an own message once: as being sent, then as part of the chat', async () => {
  const page = await open();
  const seen = new Set<string>();
  const stop = effect(() => {
    const sending = page.outgoing.value.length;
    const shown = (page.chat.value?.turns.length ?? 0) + (page.chat.value?.activeTurn ? 1 : 0);
    if (page.selected.value) seen.add(`${sending}+${shown}`);
  });
  await page.send('hello', undefined);
  await when(answered(page));
  stop();
  expect([...seen].sort()).toEqual(['0+1', '1+0']);
});

it('shows the same to a second page that joins in the middle of an answer', async () => {
  const first = await open('first');
  await first.send(`#demo\nchunk 3\ntext ${'lantern '.repeat(20)}\nwait 20\ntext the end`, undefined);
  await when(() => text(first).includes('lantern lantern'));
  const second = await open('second');
  await when(() => second.rows.value.length === 1);
  second.select(first.selected.value);
  await when(() => second.chat.value?.activeTurn !== undefined);
  await Promise.all([when(answered(first)), when(answered(second))]);
  expect(second.chat.value).toEqual(first.chat.value);
  expect(second.chat.value).toEqual(host.chatOf(first.selected.value!));
});

it.each(['replays what was missed', 'starts afresh with a host that forgot it'])(
  'reconnects after a cut in the middle of an answer and %s',
  async (kind) => {
    const page = await open();
    await page.send(`#demo\nchunk 3\ntext ${'lantern '.repeat(40)}`, undefined);
    await when(() => text(page).includes('lantern'));
    if (kind.includes('forgot')) host.knownClients.clear();
    host.cut();
    await when(() => page.status.value.kind === 'waiting');
    expect(text(page)).toContain('lantern');
    await when(answered(page));
    expect(page.chat.value).toEqual(host.chatOf(page.selected.value!));
    expect(requests('reconnect')).toHaveLength(1);
    expect(requests('initialize')).toHaveLength(kind.includes('forgot') ? 2 : 1);
    expect(page.notices.value).toEqual([]);
  },
);

it('sends a message again that was lost with the connection, and only that one', async () => {
  const page = await open();
  await page.send('first', undefined);
  await when(answered(page));
  host.deaf = true;
  await page.send('second', undefined);
  expect(page.outgoing.value).toHaveLength(1);
  host.cut();
  await when(() => page.status.value.kind === 'waiting');
  host.deaf = false;
  await when(answered(page, 2));
  expect(page.chat.value?.turns.map((turn) => turn.message.text)).toEqual(['first', 'second']);
  expect(page.outgoing.value).toEqual([]);
  expect(new Set(starts().map((each) => each.params['action'].turnId)).size).toBe(2);
});

it('gives the text back when the host refuses the message, and says why', async () => {
  const page = await open();
  host.rejectNext = 'The kitchen is closed';
  await page.send('dinner', undefined);
  await when(() => page.notices.value.length > 0);
  expect(page.notices.value[0]?.text).toContain('The kitchen is closed');
  expect(page.outgoing.value).toEqual([]);
  expect(page.drafts.value.get(page.selected.value!)).toBe('dinner');
  expect(page.chat.value?.turns).toEqual([]);
});

it('gives the text back when no session can be made', async () => {
  const page = await open();
  host.cut();
  await when(() => page.status.value.kind === 'waiting');
  await page.send('hello', undefined);
  expect(page.selected.value).toBeUndefined();
  expect(page.drafts.value.get(NEW)).toBe('hello');
  expect(page.notices.value[0]?.text).toContain('not sent');
});

it('stops the running answer', async () => {
  const page = await open();
  await page.send('#demo\ntext begin\nwait 60000\ntext end', undefined);
  await when(() => text(page).includes('begin'));
  page.stopTurn();
  await when(answered(page));
  expect(page.chat.value?.turns[0]?.state).toBe('cancelled');
  expect(page.chat.value).toEqual(host.chatOf(page.selected.value!));
});

it('deletes a session quietly here, and says so where it was being read', async () => {
  const page = await open('me');
  await page.send('hello', undefined);
  await when(answered(page));
  const session = page.selected.value!;
  const other = await open('other');
  other.select(session);
  await when(() => other.chat.value !== undefined);
  await page.remove(session);
  expect(page.selected.value).toBeUndefined();
  expect(page.rows.value).toEqual([]);
  expect(page.notices.value).toEqual([]);
  await when(() => other.selected.value === undefined);
  expect(other.notices.value[0]?.text).toContain('deleted');
  await page.remove(session);
  expect(page.notices.value).toEqual([]);
});

it('leaves the channels of a session that is no longer shown', async () => {
  const page = await open();
  await page.send('one', undefined);
  await when(answered(page));
  const session = page.selected.value!;
  const chat = page.chat.value!.resource;
  page.select(undefined);
  expect(page.chat.value).toBeUndefined();
  await page.send('two', undefined);
  await when(answered(page));
  expect(requests('unsubscribe').map((each) => each.params['channel'])).toEqual([chat, session]);
  page.select(session);
  await when(() => page.chat.value?.turns[0]?.message.text === 'one');
});

it('says so when a remembered session is gone, and goes to a new one', async () => {
  const page = await open();
  page.select('claude:/never-was');
  await when(() => page.notices.value.length > 0);
  expect(page.selected.value).toBeUndefined();
});

it('keeps unsent text when the host has lost the session', async () => {
  const page = await open();
  await page.send('one', undefined);
  await when(answered(page));
  page.draft(page.selected.value, 'half a thought');
  host.sessions.clear();
  host.knownClients.clear();
  host.cut();
  await when(() => page.selected.value === undefined);
  expect(page.drafts.value.get(NEW)).toBe('half a thought');
  await when(() => page.rows.value.length === 0);
});
