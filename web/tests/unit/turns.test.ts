// The page's state while a turn runs and after it failed, against a host over a real socket.

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { hostMethods, reportedWork, steeringOf } from '../../src/host-metadata';
import type { Page } from '../../src/page';
import { HERE } from '../../src/page/waiting-messages';
import { FakeHost, type FakeSession } from '../fake-host.mjs';
import { openPage, when } from './open-page';
import { dispatched } from './page-window';

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

/** A page with a turn that runs these steps. Steering is taken between two steps. */
async function start(...lines: string[]): Promise<Page> {
  const page = await open();
  await page.send(`#demo\n${lines.join('\n')}`, undefined);
  await when(() => page.chat.value !== undefined && page.chat.value.turns.length + (page.chat.value.activeTurn ? 1 : 0) > 0);
  return page;
}

const draft = (page: Page) => page.drafts.value.get(page.selected.value ?? '') ?? '';
const queued = (page: Page) => page.queued.value?.map((each) => each.message.text) ?? [];
const states = (page: Page) => page.chat.value?.turns.map((turn) => turn.state).join();
const session = () => [...host.sessions.values()].at(-1) as FakeSession;

it('steers the running turn, and the taken message is a part of it', async () => {
  const page = await start('text one', 'wait 500', 'text two');
  await page.send('mind the cellar', undefined, 'steering');
  await when(() => states(page) === 'complete');
  const parts = page.chat.value?.turns[0]?.responseParts ?? [];
  expect(parts.map((part) => ('content' in part ? part.content : ''))).toEqual(['one', 'mind the cellar', 'two']);
  expect(steeringOf(parts[1]!)?.id).toBe(dispatched(host, 'chat/pendingMessageSet')[0].id);
  expect(page.chat.value).toEqual(host.chatOf(page.selected.value!));
  expect(page.outgoing.value).toEqual([]);
});

it('joins steering messages that follow each other closely, so that none replaces another', async () => {
  const page = await start('wait 60000');
  await Promise.all(['a', 'b', 'c'].map((text) => page.send(text, undefined, 'steering')));
  await when(() => page.steering.value?.message.text === 'a\n\nb\n\nc' && page.outgoing.value.length === 0);
  await page.waiting.takeBack('steering', page.steering.value!);
  expect(draft(page)).toBe('a\n\nb\n\nc');
  expect(page.steering.value).toBeUndefined();
});

it.each([
  [0, 'b\n\nc'],
  [1, 'c'],
])('does not repeat a joined message that the agent had already: %i', async (taken, rest) => {
  const page = await start('wait 60000');
  await Promise.all(['a', 'b', 'c'].map((text) => page.send(text, undefined, 'steering')));
  await when(() => page.steering.value?.message.text === 'a\n\nb\n\nc' && page.outgoing.value.length === 0);
  const { id } = dispatched(host, 'chat/pendingMessageSet')[taken];
  const part = { kind: 'systemNotification', content: 'a', _meta: { 'innkeeper.steering': { id } } };
  host.publish(page.chat.value!.resource, { type: 'chat/responsePart', turnId: page.chat.value!.activeTurn!.id, part });
  await when(() => page.steering.value?.message.text === rest);
});

it('removes a message from the input box again that the agent had already', async () => {
  const page = await start('wait 60000');
  await page.send('late', undefined, 'steering');
  await when(() => page.steering.value !== undefined && page.outgoing.value.length === 0);
  const { id } = page.steering.value!;
  await page.waiting.takeBack('steering', page.steering.value!);
  expect(draft(page)).toBe('late');
  const part = { kind: 'systemNotification', content: 'late', _meta: { 'innkeeper.steering': { id } } };
  host.publish(page.chat.value!.resource, { type: 'chat/responsePart', turnId: page.chat.value!.activeTurn!.id, part });
  await when(() => page.notices.value.length > 0);
  expect(draft(page)).toBe('');
});

it('returns a message to its own session if another one is selected before the host answers', async () => {
  const page = await start('wait 60000');
  const first = page.selected.value!;
  for (const text of ['back', 'into the turn']) await page.send(text, undefined, 'queued');
  await when(() => queued(page).length === 2 && page.outgoing.value.length === 0);
  const [back, steered] = page.queued.value!;
  const outcomes = [page.waiting.takeBack('queued', back!), page.waiting.steerWith(steered!)];
  page.select(undefined);
  await Promise.all(outcomes);
  await vi.waitFor(() => expect(host.chatOf(first)?.steeringMessage?.message.text).toBe('into the turn'));
  expect(draft(page)).toBe('');
  expect(page.drafts.value.get(first)).toBe('back');
  expect(host.sessions.size).toBe(1);
});

it.each(['takeBack', 'steerWith'] as const)(
  'keeps the text if the connection breaks after the host removed the message: %s',
  async (what) => {
    const page = await start('wait 60000');
    await page.send('kept', undefined, 'queued');
    await when(() => queued(page).length === 1 && page.outgoing.value.length === 0);
    const waiting = page.queued.value![0]!;
    host.deaf = true;
    const outcome = what === 'takeBack' ? page.waiting.takeBack('queued', waiting) : page.waiting.steerWith(waiting);
    await vi.waitFor(() => expect(dispatched(host, 'chat/pendingMessageRemoved')).toHaveLength(1));
    host.cut();
    // The host applies the removal, and its echo does not reach the page.
    delete session().chat.queuedMessages;
    host.publish(session().chat.resource, { type: 'chat/pendingMessageRemoved', kind: 'queued', id: waiting.id });
    host.deaf = false;
    await outcome;
    expect(draft(page)).toBe('kept');
  },
);

it('removes an edited message again that had become a turn before', async () => {
  const page = await start('wait 60000');
  await page.send('#demo\nwait 60000', undefined, 'queued');
  await when(() => queued(page).length === 1 && page.outgoing.value.length === 0);
  const waiting = page.queued.value![0]!;
  page.stopTurn();
  await when(() => !page.running.value);
  await page.waiting.continue([waiting.id]);
  await when(() => page.chat.value?.activeTurn?.id.startsWith(`${waiting.id}-`) === true);
  await page.waiting.edit(waiting, 'too late');
  expect(draft(page)).toBe('too late');
  expect(session().chat.queuedMessages).toBeUndefined();
  expect(page.notices.value.at(-1)?.text).toContain('left the queue while you edited it');
});

it('clears the stored draft after a reconnect if the clearing was lost', async () => {
  const page = await start('wait 60000');
  page.draft(page.selected.value, 'half');
  await vi.waitFor(() => expect(session().chat.draft?.text).toBe('half'));
  host.deaf = true;
  await page.send('half', undefined, 'queued');
  await vi.waitFor(() => expect(dispatched(host, 'chat/draftChanged').at(-1)).not.toHaveProperty('draft'));
  host.cut();
  await when(() => page.status.value.kind === 'waiting');
  host.deaf = false;
  await vi.waitFor(() => expect(session().chat.draft).toBeUndefined(), 5000);
  expect(draft(page)).toBe('');
});

it('shows that something is being stopped only in its own chat', async () => {
  const page = await start('wait 60000');
  const first = page.selected.value;
  const resource = page.chat.value!.resource;
  page.select(undefined);
  await page.send('#demo\nwait 60000', undefined);
  await when(() => page.chat.value !== undefined && page.chat.value.resource !== resource && page.running.value);
  const outcome = page.stopping.stop('all');
  const restart = page.stopping.restart();
  expect(page.stopping.isStopping('all')).toBe(true);
  page.select(first);
  expect(page.stopping.isStopping('all')).toBe(false);
  expect(page.stopping.isRestarting).toBe(false);
  await Promise.all([outcome, restart]);
});

it.each(['steering', 'queued'] as const)('returns a refused %s message before the text that was typed meanwhile', async (kind) => {
  const page = await start('wait 60000');
  host.rejectNext = 'The kitchen is closed';
  await page.send('dinner', undefined, kind);
  page.draft(page.selected.value, 'lunch');
  await when(() => page.notices.value.length > 0);
  expect(draft(page)).toBe('dinner\n\nlunch');
  expect(page.outgoing.value).toEqual([]);
});

it.each(['steering', 'queued'] as const)('sends a %s message again that was lost with the connection, once', async (kind) => {
  const page = await start('wait 60000');
  host.deaf = true;
  await page.send('lost', undefined, kind);
  host.cut();
  await when(() => page.status.value.kind === 'waiting');
  host.deaf = false;
  await when(() => page.outgoing.value.length === 0);
  expect(kind === 'queued' ? queued(page) : [page.steering.value?.message.text]).toEqual(['lost']);
});

it('sends a queued message now without taking it from the queue before', async () => {
  const page = await start('wait 60000');
  for (const text of ['a', '#demo\nwait 60000', 'c']) await page.send(text, undefined, 'queued');
  await when(() => queued(page).length === 3);
  await page.waiting.sendNow(page.queued.value![1]!.id);
  await when(() => page.chat.value?.activeTurn?.message.text === '#demo\nwait 60000');
  expect(states(page)).toBe('cancelled');
  expect(queued(page)).toEqual(['a', 'c']);
  expect(dispatched(host, 'chat/pendingMessageRemoved')).toEqual([]);
  expect(page.notices.value).toEqual([]);
});

it('holds the queue after a stop until it is continued', async () => {
  const page = await start('wait 60000');
  await page.send('a', undefined, 'queued');
  await page.send('b', undefined, 'steering');
  await when(() => queued(page).length === 1 && page.steering.value !== undefined);
  page.stopTurn();
  await when(() => queued(page).join() === 'b,a' && !page.running.value);
  await page.waiting.continue(page.queued.value!.map((each) => each.id).reverse());
  await when(() => states(page) === 'cancelled,complete,complete');
  expect(page.chat.value?.turns.map((turn) => turn.message.text).slice(1)).toEqual(['a', 'b']);
});

it('knows which waiting messages are from here and from other clients', async () => {
  const page = await start('wait 60000');
  const other = await open('other');
  other.select(page.selected.value);
  await when(() => other.chat.value !== undefined);
  await page.send('mine', undefined, 'queued');
  await other.send('theirs', undefined, 'queued');
  await when(() => queued(page).length === 2 && queued(other).length === 2);
  const owners = () => page.queued.value?.map((each) => page.waiting.owners.value.get(each.id));
  await vi.waitFor(() => expect(owners()).toEqual([HERE, 'other']));
});

it('says what was stopped, and why something could not be stopped', async () => {
  const page = await start('background {"id":"w","label":"Server","command":"npm run dev"}', 'wait 60000');
  await when(() => page.backgroundWork.value?.length === 1);
  await page.stopping.stop({ workId: 'unknown' });
  expect(page.notices.value.at(-1)).toMatchObject({ text: 'Not stopped: It has ended already', kind: 'problem' });
  await page.stopping.stop('all');
  expect(page.notices.value.at(-1)).toMatchObject({ text: 'Stopped: the turn “#demo”, the command “Server”.', kind: 'report' });
  await page.stopping.stop('all');
  expect(page.notices.value.at(-1)?.text).toBe('Nothing was running.');
  expect(page.backgroundWork.value).toEqual([]);
});

it('resumes a failed turn, and sends the message of one again that cannot be resumed', async () => {
  const error = { errorType: 'overloaded', message: 'Later' };
  const page = await start(`fail ${JSON.stringify({ error, resumable: true })}`);
  await when(() => page.failedTurn.value !== undefined);
  await page.resume(page.failedTurn.value!);
  await when(() => states(page) === 'complete');
  await page.resume('unknown');
  expect(page.notices.value.at(-1)?.text).toContain('not resumed');
  await page.send(`#demo\nfail ${JSON.stringify({ error })}`, undefined);
  await when(() => page.failedTurn.value !== undefined);
  await page.retry(page.chat.value!.turns.at(-1)!.message);
  await when(() => states(page) === 'complete,error,error');
});

it('shares the draft at its start, after a pause and when it is sent', async () => {
  const page = await start('text one');
  await when(() => states(page) === 'complete');
  const drafts = () => dispatched(host, 'chat/draftChanged').map((each) => each.draft?.text);
  for (const text of ['h', 'he', 'hel']) page.draft(page.selected.value, text);
  await vi.waitFor(() => expect(drafts()[0]).toBe('h'));
  await vi.waitFor(() => expect(drafts()).toEqual(['h', 'hel']));
  await page.send('hello', undefined);
  await when(() => states(page) === 'complete,complete');
  expect(drafts()).toEqual(['h', 'hel', undefined]);
  expect(page.notices.value).toEqual([]);
});

it('takes over the stored draft, follows it until it is edited, and keeps what is typed', async () => {
  const page = await start('text one');
  await when(() => states(page) === 'complete');
  page.draft(page.selected.value, 'half');
  await vi.waitFor(() => expect(session().chat.draft?.text).toBe('half'));
  const other = await open('other');
  other.select(page.selected.value);
  await when(() => draft(other) === 'half');
  page.draft(page.selected.value, 'half a thought');
  await when(() => draft(other) === 'half a thought');
  other.draft(other.selected.value, 'half a thought of my own');
  page.draft(page.selected.value, '');
  await vi.waitFor(() => expect(session().chat.draft).toBeUndefined());
  expect(draft(other)).toBe('half a thought of my own');
  expect(draft(page)).toBe('');
});

it('reads the metadata of the host whatever it is', () => {
  const part = (meta: unknown) => ({ kind: 'systemNotification' as const, content: '', _meta: { 'innkeeper.steering': meta } });
  expect(steeringOf(part({ id: 'a', attachments: 2 }))).toEqual({ id: 'a', attachments: 2 });
  expect(steeringOf(part({ id: 7, attachments: -1 }))).toEqual({ id: '', attachments: 0 });
  expect(steeringOf(part('a'))).toBeUndefined();
  expect(steeringOf(null as never)).toBeUndefined();
  const message = (meta: unknown) => ({ text: '', origin: { kind: 'systemNotification' }, _meta: { 'innkeeper.work': meta } });
  expect(reportedWork(message({ kind: 'command', label: 'a\nb', status: 'failed' }))).toEqual({
    kind: 'command',
    label: 'a b',
    status: 'failed',
  });
  const several = { works: [{ label: 'a' }, { label: 'b' }], status: 'stopped' };
  expect(reportedWork(message(several))).toEqual({ kind: 'work', label: '2 tasks', status: 'stopped' });
  expect(reportedWork(message({}))).toEqual({ kind: 'work', label: '', status: '' });
  expect(reportedWork(message(null))).toBeUndefined();
  expect(hostMethods(undefined).size).toBe(0);
  expect(hostMethods({ _meta: { 'innkeeper.methods': 'innkeeper/stop' } } as never).size).toBe(0);
});
