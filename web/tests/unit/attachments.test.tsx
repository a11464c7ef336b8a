// @vitest-environment jsdom

// Files that are pasted into or dropped on the input box, against a host over a real socket.

import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { filesOf } from '../../src/components/AttachedFiles';
import { Composer } from '../../src/components/Composer';
import { TurnView } from '../../src/components/TurnView';
import type { Page } from '../../src/page';
import { FakeHost } from '../fake-host.mjs';
import { openPage, when } from './open-page';
import { closeWindow, dispatched } from './page-window';

let host: FakeHost;
let page: Page;
let place: HTMLElement;

const PIXEL = new File([new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0])], 'pixel.png', { type: 'image/png' });
const NOTES = new File(['Grüße'], 'notes.md', { type: 'text/markdown' });
const SENT_PIXEL = { type: 'embeddedResource', label: 'pixel.png', contentType: 'image/png', data: 'iVBORwA=' };
const SENT_NOTES = { type: 'embeddedResource', label: 'notes.md', contentType: 'text/markdown', data: 'R3LDvMOfZQ==' };

beforeEach(async () => {
  host = await new FakeHost().listen();
  page = await openPage(host);
  place = document.body.appendChild(document.createElement('div'));
});
afterEach(async () => {
  closeWindow({ page, place });
  await host.close();
});

const names = () => [...place.querySelectorAll('.composer .attached-name')].map((each) => each.textContent);
const labels = () => page.attachments.of(page.selected.value).map(({ attachment }) => attachment.label);

/** Dispatches an event with files, which this environment cannot create. */
async function give(type: 'paste' | 'drop', files: File[], types = ['Files']): Promise<Event> {
  const event = new Event(type, { bubbles: true, cancelable: true });
  Object.assign(event, { [type === 'paste' ? 'clipboardData' : 'dataTransfer']: { files, types } });
  await act(() => void place.querySelector('#composer')?.dispatchEvent(event));
  return event;
}

it('attaches pasted and dropped files, sends them with the next message and shows their names', async () => {
  await act(() => render(<Composer page={page} />, place));
  expect((await give('paste', [PIXEL])).defaultPrevented).toBe(true);
  await vi.waitFor(() => expect(names()).toEqual(['pixel.png']));
  expect(place.querySelector('#composer-hint')?.textContent).toBe('Write a message to send with the attachments.');
  await give('drop', [NOTES]);
  await vi.waitFor(() => expect(names()).toEqual(['pixel.png', 'notes.md']));
  await page.send('#demo\ntext Seen.', undefined);
  await when(() => page.chat.value?.turns.length === 1);
  expect(names()).toEqual([]);
  const { message } = dispatched(host, 'chat/turnStarted')[0];
  expect(message.attachments).toEqual([SENT_PIXEL, SENT_NOTES]);
  await act(() => render(<TurnView turn={page.chat.value!.turns[0]!} />, place));
  expect([...place.querySelectorAll('.user .attached-name')].map((each) => each.textContent)).toEqual(['pixel.png', 'notes.md']);
  expect(place.querySelector('img')).toBeNull();
});

it('removes an attachment, and keeps the rest out of the stored draft', async () => {
  await page.send('#demo\ntext First.', undefined);
  await when(() => page.chat.value?.turns.length === 1);
  await act(() => render(<Composer page={page} />, place));
  await page.attachments.add(page.selected.value, [PIXEL, NOTES]);
  page.draft(page.selected.value, 'half');
  await vi.waitFor(() => expect(names()).toEqual(['pixel.png', 'notes.md']));
  await act(() => place.querySelector<HTMLButtonElement>('[aria-label="Remove pixel.png"]')?.click());
  expect(names()).toEqual(['notes.md']);
  await vi.waitFor(() => expect(host.chatOf(page.selected.value!)?.draft).toEqual({ text: 'half', origin: { kind: 'user' } }));
});

it.each([
  ['large.png', new File([new Uint8Array(5 * 1024 * 1024 + 1)], 'large.png', { type: 'image/png' }), 'at most 5 MB'],
  ['large.txt', new File(['x'.repeat(256 * 1024 + 1)], 'large.txt'), 'text can have at most 256 KB'],
  ['a.zip', new File([new Uint8Array([0x50, 0x4b, 0])], 'a.zip'), 'only text and PNG, JPEG, GIF or WebP images'],
  ['a.bin', new File([new Uint8Array([0xff, 0xfe, 0xfd])], 'a.bin'), 'only text and PNG, JPEG, GIF or WebP images'],
])('refuses %s with the reason', async (name, file, reason) => {
  await page.attachments.add(undefined, [file, NOTES]);
  expect(labels()).toEqual(['notes.md']);
  expect(page.notices.value.map((notice) => notice.text)).toEqual([expect.stringContaining(`${name} was not attached: `)]);
  expect(page.notices.value[0]?.text).toContain(reason);
});

it('limits the size of all attachments of a message', async () => {
  const half = () => new File([new Uint8Array(3 * 1024 * 1024)], 'half.png', { type: 'image/png' });
  await page.attachments.add(undefined, [half(), half()]);
  expect(labels()).toEqual(['half.png']);
  expect(page.notices.value).toHaveLength(1);
});

it('returns the attachments with a message that was refused or taken back', async () => {
  await page.send('#demo\ntext First.\nwait 60000', undefined);
  await when(() => page.running.value && page.outgoing.value.length === 0);
  await page.attachments.add(page.selected.value, [NOTES]);
  host.rejectNext = 'Not now';
  await page.send('Queued', undefined, 'queued');
  await when(() => page.notices.value.length > 0);
  expect(labels()).toEqual(['notes.md']);
  await page.send('Queued', undefined, 'queued');
  await when(() => page.queued.value?.length === 1 && page.outgoing.value.length === 0);
  expect(labels()).toEqual([]);
  await page.waiting.takeBack('queued', page.queued.value![0]!);
  expect(labels()).toEqual(['notes.md']);
});

it('pastes rich text as text', () => {
  const data = (types: string[]) => ({ types, files: [PIXEL] }) as unknown as DataTransfer;
  expect(filesOf(data(['text/plain', 'text/html', 'Files']))).toEqual([]);
  expect(filesOf(data(['text/html', 'Files']))).toEqual([PIXEL]);
});
