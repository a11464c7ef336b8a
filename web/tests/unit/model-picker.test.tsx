// @vitest-environment jsdom

// The choice of a model and an effort level, against a host over a real socket.

import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { Composer } from '../../src/components/Composer';
import type { Page } from '../../src/page';
import { FakeHost } from '../fake-host.mjs';
import { openPage, when } from './open-page';
import { closeWindow, dispatched } from './page-window';

let host: FakeHost;
let page: Page;
let place: HTMLElement;

const HIGH = { id: 'claude-opus-4.6', config: { thinkingLevel: 'high' } };
const HAIKU = { id: 'claude-haiku-4.5' };
const OPUS = { id: 'claude-opus-4.6', config: { thinkingLevel: 'medium' } };

beforeEach(async () => {
  host = await new FakeHost().listen();
  page = await openPage(host);
  place = document.body.appendChild(document.createElement('div'));
});
afterEach(async () => {
  closeWindow({ page, place });
  await host.close();
});

const show = () => act(() => render(<Composer page={page} />, place));
const picker = () => place.querySelector<HTMLButtonElement>('.model-button');
const item = (name: string) =>
  [...place.querySelectorAll<HTMLButtonElement>('.model [role=menuitemradio]')].find((each) => each.textContent!.startsWith(name))!;
const hint = () => place.querySelector('#composer-hint')?.textContent;
const session = () => host.sessions.get(page.selected.value!)!;
const sentModels = () => dispatched(host, 'chat/turnStarted').map((action) => action.message.model);

async function choose(name: string): Promise<void> {
  await act(() => picker()?.click());
  await act(() => item(name).click());
}

async function send(script: string): Promise<void> {
  const before = page.chat.value?.turns.length ?? 0;
  await page.send(`#demo\n${script}`, undefined);
  await when(() => page.chat.value?.turns.length === before + 1 && page.outgoing.value.length === 0);
}

/** Another client sends a message with this model. */
async function sendElsewhere(model: object): Promise<void> {
  const other = await openPage(host, 'other');
  other.select(page.selected.value);
  await when(() => other.chat.value !== undefined);
  other.chooseModel(model as { id: string });
  const before = page.chat.value?.turns.length ?? 0;
  await other.send('#demo\ntext Elsewhere', undefined);
  await when(() => page.chat.value?.turns.length === before + 1);
  other.stop();
}

it('lists the models with multiplier and context, and sends the choice with the next message only', async () => {
  await show();
  expect(picker()?.textContent).toBe('Auto (Claude Sonnet 4.5)');
  await act(() => picker()?.click());
  expect(item('Claude Haiku').textContent).toBe('Claude Haiku 4.50.33× · 200K tokens of context');
  expect(item('Claude Opus').textContent).toBe('Claude Opus 4.63× · 1M tokens of context');
  await act(() => item('Claude Opus').click());
  await choose('High');
  expect(picker()?.getAttribute('aria-label')).toBe('Model: Claude Opus 4.6, High effort');
  await send('text First');
  await send('text Second');
  expect(sentModels()).toEqual([HIGH, undefined]);
  expect(picker()?.textContent).toBe('Claude Opus 4.6High');
  page.select(undefined);
  await vi.waitFor(() => expect(picker()?.textContent).toBe('Auto (Claude Sonnet 4.5)'));
});

it('offers effort levels only for models that have them', async () => {
  await show();
  await choose('Claude Haiku');
  await act(() => picker()?.click());
  expect(place.querySelector('.effort-list')).toBeNull();
  await act(() => item('Claude Opus').click());
  await act(() => picker()?.click());
  const levels = [...place.querySelectorAll('.effort-list button')].map((each) => each.textContent);
  expect(levels).toEqual(['Low', 'Medium', 'High', 'Maximum']);
  expect(item('Medium').getAttribute('aria-checked')).toBe('true');
  await act(() => item('Maximum').click());
  await choose('Claude Sonnet');
  await send('text First');
  expect(sentModels()).toEqual([{ id: 'claude-sonnet-4.5', config: { thinkingLevel: 'medium' } }]);
});

it('moves through models and effort levels with the keyboard', async () => {
  await show();
  await act(() => picker()?.click());
  await vi.waitFor(() => expect(document.activeElement).toBe(item('Auto')));
  const key = (name: string) =>
    act(() => {
      document.activeElement?.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
    });
  await key('ArrowDown');
  expect(document.activeElement).toBe(item('Claude Haiku'));
  await key('End');
  expect(document.activeElement).toBe(item('High'));
  await key('Escape');
  expect(document.activeElement).toBe(picker());
  expect(page.models.value?.current.id).toBe('default');
});

it('keeps the choice of each chat, also without text and after a reload', async () => {
  await send('text First');
  const first = page.selected.value!;
  page.chooseModel(HIGH);
  await vi.waitFor(() => expect(session().chat.draft).toEqual({ text: '', origin: { kind: 'user' }, model: HIGH }));
  page.draft(first, 'half a thought');
  await vi.waitFor(() => expect(session().chat.draft).toEqual({ text: 'half a thought', origin: { kind: 'user' }, model: HIGH }));
  page.select(undefined);
  expect(page.models.value?.current.id).toBe('default');
  const reloaded = await openPage(host, 'reloaded');
  reloaded.select(first);
  await when(() => reloaded.models.value?.current.id === HIGH.id);
  expect(reloaded.models.value?.effort?.id).toBe('high');
  await reloaded.send('#demo\ntext Second', undefined);
  await when(() => reloaded.chat.value?.turns.length === 2);
  expect(sentModels()).toEqual([undefined, HIGH]);
  await vi.waitFor(() => expect(host.chatOf(first)?.draft).toBeUndefined());
  reloaded.stop();
});

it('follows the model of a message of another client, which ends an unsent choice', async () => {
  await show();
  await send('text First');
  await sendElsewhere(HAIKU);
  expect(picker()?.textContent).toBe('Claude Haiku 4.5');
  await choose('Claude Opus');
  expect(picker()?.textContent).toBe('Claude Opus 4.6');
  await sendElsewhere({ id: 'claude-sonnet-4.5' });
  await vi.waitFor(() => expect(picker()?.textContent).toBe('Claude Sonnet 4.5'));
  await vi.waitFor(() => expect(session().chat.draft).toBeUndefined());
});

it('keeps a later choice when an own queued message starts', async () => {
  await page.send('#demo\ntext First\nwait 60000', undefined);
  await when(() => page.running.value && page.outgoing.value.length === 0);
  page.chooseModel(HAIKU);
  await page.send('#demo\ntext Queued', undefined, 'queued');
  await when(() => page.queued.value?.length === 1 && page.outgoing.value.length === 0);
  expect(page.queued.value?.[0]?.message.model).toEqual(HAIKU);
  expect(page.models.value?.current.id).toBe(HAIKU.id);
  page.chooseModel(OPUS);
  await page.waiting.sendNow(page.queued.value![0]!.id);
  await when(() => page.chat.value?.turns.length === 2);
  expect(page.models.value?.current.id).toBe(OPUS.id);
});

it('keeps a choice that is made before the host has the message', async () => {
  await send('text First');
  page.chooseModel(HAIKU);
  const sent = page.send('#demo\ntext Second', undefined);
  page.chooseModel(OPUS);
  await sent;
  await when(() => page.chat.value?.turns.length === 2 && page.outgoing.value.length === 0);
  expect(sentModels()).toEqual([undefined, HAIKU]);
  expect(page.models.value?.current.id).toBe(OPUS.id);
});

it('does not send the choice with a steering message', async () => {
  await page.send('#demo\ntext First\nwait 60000', undefined);
  await when(() => page.running.value && page.outgoing.value.length === 0);
  page.chooseModel(HAIKU);
  await page.send('Steer', undefined, 'steering');
  await when(() => page.steering.value !== undefined);
  expect(page.steering.value?.message.model).toBeUndefined();
  expect(page.models.value?.current.id).toBe(HAIKU.id);
});

it('falls back to the first model with a hint when the chosen one is no longer listed', async () => {
  await show();
  await choose('Claude Opus');
  await send('text First');
  host.setModels(host.models.filter((model) => model.id !== OPUS.id));
  const words = 'claude-opus-4.6 is no longer offered. The next message uses Auto (Claude Sonnet 4.5).';
  await vi.waitFor(() => expect(hint()).toBe(words));
  expect(picker()?.textContent).toBe('Auto (Claude Sonnet 4.5)');
  await send('text Second');
  expect(sentModels()).toEqual([OPUS, { id: 'default', config: { thinkingLevel: 'medium' } }]);
  await vi.waitFor(() => expect(hint()).not.toContain('no longer offered'));
});

it('retries a message with a model that is listed', async () => {
  await page.send('#demo\ntext First', undefined);
  await when(() => page.chat.value?.turns.length === 1);
  await page.retry({ text: '#demo\ntext Again', origin: { kind: 'user' }, model: { id: 'claude-gone' } });
  await when(() => page.chat.value?.turns.length === 2);
  await page.retry({ text: '#demo\ntext Again', origin: { kind: 'user' }, model: HAIKU });
  await when(() => page.chat.value?.turns.length === 3);
  expect(sentModels().slice(1)).toEqual([{ id: 'default', config: { thinkingLevel: 'medium' } }, HAIKU]);
});

it('keeps the model of a chat while the host lists only its default', async () => {
  page.chooseModel(HAIKU);
  await send('text First');
  await show();
  host.setModels([{ id: 'default', name: 'Auto' }]);
  await vi.waitFor(() => expect(picker()?.textContent).toBe('claude-haiku-4.5'));
  expect(hint()).toBe('The host cannot list its models now. The next message uses claude-haiku-4.5.');
  await send('text Second');
  expect(sentModels()).toEqual([HAIKU, undefined]);
  page.select(undefined);
  await vi.waitFor(() => expect(picker()?.textContent).toBe('Auto'));
});

it('returns the choice with a message that the host refuses', async () => {
  await send('text First');
  page.chooseModel(HIGH);
  host.rejectNext = 'Not now';
  await page.send('#demo\ntext Second', undefined);
  await when(() => page.notices.value.length > 0);
  expect(page.models.value?.current.id).toBe(HIGH.id);
  await send('text Second');
  expect(sentModels().at(-1)).toEqual(HIGH);
});

it('is absent without models, ignores malformed ones and does not choose a disabled one', async () => {
  host.setModels([]);
  await show();
  await vi.waitFor(() => expect(picker()).toBeNull());
  const malformed: any[] = [
    null,
    { id: 7 },
    { id: 'a', name: 3, maxContextWindow: 'x', configSchema: { properties: { thinkingLevel: { enum: 'x' } } } },
  ];
  host.setModels([...malformed, { id: 'b', name: 'B\nB', policyState: 'disabled', supportsVision: false }]);
  await vi.waitFor(() => expect(picker()?.textContent).toBe('a'));
  await choose('B B');
  expect(item('B B').textContent).toBe('B Bnot enabled for your account · no images');
  expect(page.models.value?.current.id).toBe('a');
});
