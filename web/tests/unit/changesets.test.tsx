// @vitest-environment jsdom

// Changed files in the page, against a host over a real socket.

import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { ChangesButton, ChangesView } from '../../src/components/changes/ChangesView';
import type { Page } from '../../src/page';
import { FakeHost } from '../fake-host.mjs';
import { when } from './open-page';
import { closeWindow, openWindow, type PageWindow } from './page-window';

const MODIFY = { path: '/inn/a.rs', before: 'one\ntwo\n', after: 'one\nTWO\nthree\n' };
const CREATE = { path: '/inn/b.rs', after: 'new\n', sources: ['shell'] };
const REFUSE = { path: '/inn/c.rs', before: 'x\n', after: 'y\n', conflict: '<<<<<<< now\nz\n=======\nx\n>>>>>>> before\n' };

let host: FakeHost;
let windows: PageWindow[];

beforeEach(async () => {
  // jsdom has no modal dialogs.
  HTMLDialogElement.prototype.showModal = function () {
    this.open = true;
  };
  HTMLDialogElement.prototype.close = function () {
    this.open = false;
    this.dispatchEvent(new Event('close'));
  };
  host = await new FakeHost().listen();
  windows = [];
});
afterEach(async () => {
  for (const each of windows) closeWindow(each);
  await host.close();
});

async function open(clientId: string): Promise<PageWindow> {
  const opened = await openWindow(host, clientId);
  windows.push(opened);
  return opened;
}

/** Opens a window whose agent made the changes. */
async function work(...changes: object[]): Promise<PageWindow> {
  const window = await open('first');
  await window.page.send(`#demo\n${changes.map((each) => `edit ${JSON.stringify(each)}`).join('\n')}`, 'file:///inn');
  await when(() => window.page.chat.value?.turns.length === 1);
  return window;
}

/** Shows the view of all changes instead of the turns. */
async function showChanges({ page, place }: PageWindow): Promise<void> {
  await act(() => render(<Changes page={page} />, place));
}

function Changes({ page }: { page: Page }) {
  return (
    <>
      <ChangesButton page={page} />
      <ChangesView page={page} />
    </>
  );
}

const rows = ({ place }: PageWindow) => [...place.querySelectorAll<HTMLElement>('.file')];
const row = (window: PageWindow, name: string) => rows(window).find((each) => each.dataset['file']?.endsWith(name))!;
const labels = (window: PageWindow) => rows(window).map((each) => each.querySelector('.file-toggle')?.textContent);
const buttons = (place: ParentNode) => [...place.querySelectorAll('button')];
const find = (place: ParentNode, name: string) => buttons(place).find((each) => each.textContent === name);
const press = (place: ParentNode, name: string) => act(() => find(place, name)!.click());
const unfold = (window: PageWindow, name: string) => act(() => row(window, name).querySelector('button')!.click());
const text = ({ place }: PageWindow) => place.textContent;
const requests = (method: string) => host.received.filter((each) => each.method === method).map((each) => each.params);
const channelsOf = (method: string) => requests(method).map((params) => params['channel']);
const turnChannel = ({ page }: PageWindow) => `${page.selected.value}/changeset/turn/${page.chat.value!.turns[0]!.id}`;
const sessionChannel = ({ page }: PageWindow) => `${page.selected.value}/changeset/session`;
/** The changeset of the turn is there. */
const known = (window: PageWindow) => vi.waitFor(() => expect(find(window.place, 'Undo all')).toBeDefined());

it('lists the files of a turn, and subscribes to its changeset while the list is shown', async () => {
  const window = await work(MODIFY, CREATE);
  await known(window);
  expect(labels(window)).toEqual(['a.rs+2 lines added, −1 lines removed', 'b.rscreatedshell+1 lines added, −0 lines removed']);
  expect(channelsOf('subscribe')).toContain(turnChannel(window));
  expect(requests('resourceRead')).toEqual([]);
  const channel = turnChannel(window);
  await act(() => window.page.select(undefined));
  await vi.waitFor(() => expect(channelsOf('unsubscribe')).toContain(channel));
  expect(window.page.changesets.views.value.size).toBe(0);
});

it('lists files from tool calls if the host has no changesets', async () => {
  const window = await work();
  const edit = { after: { uri: 'file:///inn/x', content: { uri: 'file:///inn/x' } }, diff: { added: 4, removed: 0 } };
  const result = { success: true, content: [{ type: 'fileEdit', ...edit }] };
  await window.page.send(`#demo\ncalled ${JSON.stringify({ toolName: 'Edit', message: 'Edit', result })}`, undefined);
  await vi.waitFor(() => expect(labels(window)).toEqual(['x' + 'created' + '+4 lines added, −0 lines removed']));
  await unfold(window, 'x');
  expect(text(window)).toContain('The contents before and after the change are not stored');
  expect(find(window.place, 'Undo all')).toBeUndefined();
});

it('undoes a hunk with its range, and shows the new diff', async () => {
  const window = await work(MODIFY);
  await known(window);
  await unfold(window, 'a.rs');
  await vi.waitFor(() => expect(find(window.place, 'Undo this hunk, Lines 1–3')).toBeDefined());
  await press(window.place, 'Undo this hunk, Lines 1–3');
  await vi.waitFor(() => expect(text(window)).toContain('No changes of this turn are left.'));
  const range = { start: { line: 1, character: 0 }, end: { line: 3, character: 0 } };
  const target = { kind: 'range', resource: 'file:///inn/a.rs', range };
  expect(requests('invokeChangesetOperation')).toEqual([{ channel: turnChannel(window), operationId: 'undo', target }]);
});

it('shows refused files, their conflict, and repeats the operation by force for one file', async () => {
  const window = await work(MODIFY, REFUSE);
  await known(window);
  await press(window.place, 'Undo all');
  await vi.waitFor(() => expect(text(window)).toContain('Undid the changes of 1 file. Left 1 file alone.'));
  expect(text(window)).toContain('c.rs: later changes overlap with this one');
  await press(window.place, 'Show conflict');
  await vi.waitFor(() => expect(window.place.querySelector('.conflict')?.textContent).toContain('<<<<<<< now\nz\n'));
  await press(window.place, 'Undo anyway');
  expect(requests('invokeChangesetOperation')).toHaveLength(1);
  await press(window.place.querySelector('dialog')!, 'Undo anyway');
  await vi.waitFor(() => expect(text(window)).toContain('No changes of this turn are left.'));
  const target = { kind: 'resource', resource: 'file:///inn/c.rs' };
  const forced = { channel: turnChannel(window), operationId: 'undo', target, _meta: { 'innkeeper.force': true } };
  expect(requests('invokeChangesetOperation').at(-1)).toEqual(forced);
});

it('asks before it restores, and offers to redo afterwards', async () => {
  const window = await work(MODIFY);
  await known(window);
  await press(window.place, 'Restore files to before this turn');
  await press(window.place.querySelector('dialog')!, 'Cancel');
  expect(requests('invokeChangesetOperation')).toEqual([]);
  await press(window.place, 'Restore files to before this turn');
  await press(window.place.querySelector('dialog')!, 'Restore');
  await vi.waitFor(() => expect(find(window.place, 'Redo: Restore a.rs')).toBeDefined());
  await press(window.place, 'Redo: Restore a.rs');
  await vi.waitFor(() => expect(rows(window)).toHaveLength(1));
});

it('keeps files in every window, and shows counts in the header', async () => {
  const first = await work(MODIFY, CREATE);
  const second = await open('second');
  second.page.select(first.page.selected.value);
  await when(() => second.page.chat.value !== undefined && second.page.rows.value.length === 1);
  for (const each of windows) await showChanges(each);
  for (const each of windows) await vi.waitFor(() => expect(rows(each)).toHaveLength(2));
  expect(second.place.querySelector('.changes-button')?.textContent).toBe('Changes+3 lines added, −1 lines removed · 2 files');
  const box = ({ place }: PageWindow) => place.querySelectorAll<HTMLInputElement>('.file-keep input')[1]!;
  await act(() => box(first).click());
  await vi.waitFor(() => expect([box(first).checked, box(second).checked]).toEqual([true, true]));
  await act(() => box(second).click());
  await vi.waitFor(() => expect([box(first).checked, box(second).checked]).toEqual([false, false]));
  await press(first.place, 'Keep all');
  await vi.waitFor(() => expect(second.place.querySelectorAll('.file-keep input:checked')).toHaveLength(2));
  await press(second.place, 'Undo all');
  await vi.waitFor(() => expect(text(second)).toContain('Undid the changes of 0 files.'));
});

it('shows the status of a changeset and why it cannot be shown', async () => {
  const window = await work(MODIFY);
  await showChanges(window);
  const channel = sessionChannel(window);
  await vi.waitFor(() => expect(rows(window)).toHaveLength(1));
  const publish = async (action: { type: string; [field: string]: unknown }, words: string) => {
    await act(() => host.publish(channel, action));
    await vi.waitFor(() => expect(text(window)).toContain(words));
  };
  const error = { errorType: 'edits', message: 'The disk is full.' };
  await publish({ type: 'changeset/statusChanged', status: 'computing' }, 'Computing the changes…');
  await publish({ type: 'changeset/statusChanged', status: 'recomputing' }, 'Updating…');
  await publish({ type: 'changeset/statusChanged', status: 'error', error }, 'could not be computed: The disk is full.');
  await publish({ type: 'changeset/statusChanged', status: 'ready' }, 'a.rs');
  await publish({ type: 'changeset/operationStatusChanged', operationId: 'undo', status: 'error', error }, 'Undo: The disk is full.');
  host.rejectNext = 'cannot change a.rs';
  await press(row(window, 'a.rs'), 'Undo a.rs');
  await vi.waitFor(() => expect(text(window)).toContain('This did not work. cannot change a.rs'));
  await publish({ type: 'changeset/cleared' }, 'There are no changes.');
});

it.each(['continues', 'starts afresh'])('subscribes again after a reconnect that %s', async (kind) => {
  const window = await work(MODIFY);
  await showChanges(window);
  await vi.waitFor(() => expect(rows(window)).toHaveLength(1));
  const session = host.sessions.get(window.page.selected.value!)!;
  if (kind === 'starts afresh') host.knownClients.clear();
  host.cut();
  await when(() => window.page.status.value.kind !== 'online');
  expect(rows(window)).toHaveLength(1);
  expect(row(window, 'a.rs').querySelector('.small')?.getAttribute('aria-disabled')).toBe('true');
  session.changes = [];
  host.changesChanged(session);
  await vi.waitFor(() => expect(text(window)).toContain('There are no changes.'));
});

it('survives files, operations and diffs of any form', async () => {
  const window = await work(MODIFY);
  await showChanges(window);
  await vi.waitFor(() => expect(rows(window)).toHaveLength(1));
  const hostile = (id: string, uri: string, meta: unknown) => ({
    id,
    edit: { before: { uri: 3 }, after: { uri, content: { uri: `innkeeper-blob:/${'a'.repeat(64)}/x` } }, diff: 'many' },
    reviewed: 'yes',
    _meta: { 'innkeeper.edit': meta },
  });
  const files = [
    null,
    3,
    { id: 'a' },
    hostile('b', 'file:///<img src=x onerror=alert(1)>', { sources: 'shell', notUndoable: 3 }),
    hostile('c', 'file:///\u202egnp.exe', { sources: [null, {}], overlaps: 'x', notUndoable: 'x'.repeat(5_000) }),
  ];
  const operations = [{ id: 'undo' }, { id: 'undo', scopes: ['resource', 'changeset'], label: 3, confirmation: 4, status: 7 }];
  await act(() => host.publish(sessionChannel(window), { type: 'changeset/contentChanged', files, operations }));
  await vi.waitFor(() => expect(rows(window)).toHaveLength(2));
  expect(window.place.querySelector('img')).toBeNull();
  expect(labels(window)[1]).not.toContain('\u202e');
  for (const each of rows(window)) await act(() => each.querySelector('button')!.click());
  await vi.waitFor(() => expect(window.place.querySelectorAll('.diff-remark')).toHaveLength(1));
  expect(text(window)).toContain('For the same reason there is no diff.');
  expect(text(window)).toContain('The contents before and after the change are not stored');
  expect(text(window).length).toBeLessThan(3_000);
});

it('shows what a call would change, and the raw input if the diff cannot be read', async () => {
  const window = await open('first');
  const edits = [{ uri: 'file:///inn/a.rs', before: 'one\n', after: 'two\n' }];
  const call = { toolName: 'Edit', title: 'Change this file?', message: 'Edit a.rs', input: '{"file_path":"/inn/a.rs"}', edits };
  await window.page.send(`#demo\npermit ${JSON.stringify([call])}`, 'file:///inn');
  await vi.waitFor(() => expect(window.place.querySelectorAll('.request tr')).toHaveLength(2));
  const raw = () => window.place.querySelector<HTMLDetailsElement>('.request .raw');
  expect(raw()?.open).toBe(false);
  expect(raw()?.textContent).toContain('/inn/a.rs');
  const { resource, activeTurn } = window.page.chat.value!;
  const content = (digit: string) => ({ uri: 'file:///inn/a.rs', content: { uri: `innkeeper-diff:/${digit}` } });
  const ready = { toolCallId: 'call-0', invocationMessage: 'Edit', toolInput: '{"x":1}', edits: { items: [{ after: content('0') }] } };
  await act(() => host.publish(resource, { type: 'chat/toolCallReady', turnId: activeTurn!.id, ...ready }));
  await vi.waitFor(() => expect(raw()?.open).toBe(true));
  await act(() => window.page.stopTurn());
  await when(() => window.page.chat.value?.turns.length === 1);
});
