// @vitest-environment jsdom

// Permission requests and plans in the page, against a host over a real socket.

import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { STILL_MS } from '../../src/stillness';
import { FakeHost } from '../fake-host.mjs';
import { when } from './open-page';
import { button, closeWindow, dispatched, openWindow, type PageWindow, type } from './page-window';

const RUN = {
  toolName: 'Bash',
  displayName: 'Bash',
  title: 'Run this command?',
  message: 'Run `npm test`',
  input: 'npm test',
  intention: 'Run the unit tests',
  meta: { layer: 'protected-path', reason: 'Commands are asked for in this mode.', rules: ['Bash(npm test:*)'], suggestedBy: 'agent' },
};
const PLAN = { toolName: 'ExitPlanMode', title: 'Approve this plan?', message: '', input: '# Plan\n\n1. Read\n2. **Write**', plan: true };

let host: FakeHost;
let windows: PageWindow[];
/** How much the clock of the page is ahead, in milliseconds. */
let skipped = 0;

beforeEach(async () => {
  const now = performance.now.bind(performance);
  vi.spyOn(performance, 'now').mockImplementation(() => now() + skipped);
  host = await new FakeHost().listen();
  windows = [];
});
afterEach(async () => {
  vi.restoreAllMocks();
  for (const each of windows) closeWindow(each);
  await host.close();
});

async function open(clientId: string): Promise<PageWindow> {
  const opened = await openWindow(host, clientId);
  windows.push(opened);
  return opened;
}

/** Opens a window whose agent requests permission for the calls, and waits until presses count. */
async function request(...calls: object[]): Promise<PageWindow> {
  const window = await open('first');
  await window.page.send(`#demo\npermit ${JSON.stringify(calls)}\ntext done`, undefined);
  await vi.waitFor(() => expect(cards(window)).toHaveLength(calls.length));
  await still();
  return window;
}

async function join(first: PageWindow): Promise<PageWindow> {
  const second = await open('second');
  second.page.select(first.page.selected.value);
  await vi.waitFor(() => expect(cards(second)).not.toHaveLength(0));
  await still();
  return second;
}

/** Lets the time pass until presses count in every window. */
async function still(): Promise<void> {
  await vi.waitFor(() => {
    skipped += STILL_MS / 2;
    expect(document.querySelectorAll('.choices:not([data-ready])')).toHaveLength(0);
  });
}
const cards = ({ place }: PageWindow) => [...place.querySelectorAll<HTMLElement>('.request')];
const card = (window: PageWindow) => cards(window)[0]!;
const decisions = () => dispatched(host, 'chat/toolCallConfirmed');
const press = (window: PageWindow, name: string) => act(() => button(window, name).click());
const finished = (window: PageWindow) => when(() => window.page.chat.value?.turns.length === 1);

it('shows what is asked, why, and which rule would be remembered', async () => {
  const window = await request(RUN);
  expect(card(window).getAttribute('aria-labelledby')).toBe(card(window).querySelector('h3')?.id);
  expect(card(window).querySelector('h3')?.textContent).toBe('Run this command?');
  expect(card(window).querySelector('pre')?.textContent).toBe('npm test');
  expect(card(window).querySelector('.markdown')).toBeNull();
  const text = card(window).textContent;
  expect(text).toContain('Run the unit tests');
  expect(text).toContain('Commands are asked for in this mode. Protected file');
  expect(text).toContain(
    '“Allow for this session” and “Always allow in this workspace” add this rule, which the agent suggested:Bash(npm test:*)',
  );
});

it.each([
  ['Allow once', 'allow-once', true],
  ['Allow for this session', 'allow-session', true],
  ['Always allow in this workspace', 'allow-workspace', true],
  ['Deny', 'deny', false],
])('sends %s with its option, and shows a row afterwards', async (label, selectedOptionId, approved) => {
  const window = await request(RUN);
  await press(window, label);
  await finished(window);
  const { id: turnId } = window.page.chat.value!.turns[0]!;
  const how = approved ? { confirmed: 'user-action' } : { reason: 'denied', reasonMessage: 'Denied in the browser' };
  expect(decisions()).toEqual([{ type: 'chat/toolCallConfirmed', turnId, toolCallId: 'call-0', approved, ...how, selectedOptionId }]);
  expect(cards(window)).toEqual([]);
  expect(window.place.querySelector('.tool')?.getAttribute('data-outcome')).toBe(approved ? 'done' : 'denied');
  expect(window.page.chat.value).toEqual(host.chatOf(window.page.selected.value!));
  expect(window.page.notices.value).toEqual([]);
});

it('ignores a press while the card has just appeared, and says so', async () => {
  const window = await open('first');
  await window.page.send(`#demo\npermit ${JSON.stringify([RUN])}\ntext done`, undefined);
  await vi.waitFor(() => expect(cards(window)).toHaveLength(1));
  await press(window, 'Allow once');
  expect(card(window).textContent).toContain('The request has just appeared, moved or changed. Press again.');
  await still();
  expect(decisions()).toEqual([]);
  await press(window, 'Allow once');
  await finished(window);
});

it('ignores a press while the card has just moved', async () => {
  const window = await request(RUN);
  vi.spyOn(Element.prototype, 'getBoundingClientRect').mockReturnValue({ left: 0, top: -40 } as DOMRect);
  await press(window, 'Allow once');
  expect(decisions()).toEqual([]);
  await still();
  await press(window, 'Allow once');
  await finished(window);
});

it('ignores a press while the input has just changed', async () => {
  const window = await request(RUN);
  const { resource, activeTurn } = window.page.chat.value!;
  const changed = { toolCallId: 'call-0', invocationMessage: 'Run', toolInput: 'rm -rf .' };
  await act(() => host.publish(resource, { type: 'chat/toolCallReady', turnId: activeTurn!.id, ...changed }));
  await vi.waitFor(() => expect(card(window).querySelector('pre')?.textContent).toBe('rm -rf .'));
  await press(window, 'Allow once');
  expect(card(window).textContent).toContain('Press again');
  expect(decisions()).toEqual([]);
});

it('sends the reason of a denial, and does not allow while there is one', async () => {
  const window = await request(RUN);
  await press(window, 'Deny with a reason…');
  expect(document.activeElement).toBe(card(window).querySelector('textarea'));
  await type(card(window).querySelector('textarea')!, ' Use the fake host ');
  await still();
  await press(window, 'Allow once');
  expect(card(window).textContent).toContain('Remove the reason');
  await press(window, 'Deny');
  await finished(window);
  const userSuggestion = { text: 'Use the fake host', origin: { kind: 'user' } };
  expect(decisions()).toEqual([expect.objectContaining({ approved: false, selectedOptionId: 'deny', userSuggestion })]);
  expect(window.place.querySelector('.tool-reason')?.textContent).toBe('Denied in the browser “Use the fake host”');
});

it('sends a changed input once, and nothing when the input was not changed', async () => {
  const window = await request({ ...RUN, editable: true }, { ...RUN, editable: true });
  await press(window, 'Edit');
  await type(card(window).querySelector('textarea')!, 'npm test -- --run');
  await still();
  await press(window, 'Allow for this session');
  expect(card(window).textContent).toContain('A changed input can be allowed once.');
  await press(window, 'Allow once');
  await vi.waitFor(() => expect(cards(window)).toHaveLength(1));
  await press(window, 'Edit');
  await still();
  await press(window, 'Allow for this session');
  await finished(window);
  expect(decisions().map((each) => each.editedToolInput)).toEqual(['npm test -- --run', undefined]);
});

it('does not send a changed input that is not JSON, and offers to edit only if the host allows it', async () => {
  const window = await request({ ...RUN, input: '{"command":"ls"}', editable: true });
  await press(window, 'Edit');
  expect(card(window).querySelector('textarea')!.value).toBe('{\n  "command": "ls"\n}');
  await type(card(window).querySelector('textarea')!, '{"command":');
  await still();
  await press(window, 'Allow once');
  expect(card(window).textContent).toContain('The input is not a JSON object.');
  await press(window, 'Undo the changes');
  await still();
  await press(window, 'Allow once');
  await finished(window);
  expect(decisions()).toEqual([expect.not.objectContaining({ editedToolInput: expect.anything() })]);
  await window.page.send(`#demo\npermit ${JSON.stringify(RUN)}`, undefined);
  await vi.waitFor(() => expect(cards(window)).toHaveLength(1));
  expect(button(window, 'Edit')).toBeUndefined();
});

it('folds a long input and says how much is hidden', async () => {
  const input = Array.from({ length: 60 }, (_, index) => `echo ${index}`).join('\n');
  const window = await request({ ...RUN, input });
  expect(card(window).textContent).not.toContain('echo 59');
  await press(window, 'Show all (48 more lines)');
  expect(card(window).querySelector('pre')?.textContent).toContain('echo 59');
});

it('shows characters that would hide a part of the command, and markup as text', async () => {
  const window = await request({ ...RUN, title: '<b>Run</b>', message: '<img src=x>', input: 'ls \u202e; rm -rf ~ <i>' });
  expect(card(window).textContent).toContain('ls ⟨U+202E⟩; rm -rf ~ <i>');
  expect(card(window).querySelector('b, i, img')).toBeNull();
});

it('shows the same card in two windows; the first answer counts, and the second client is told', async () => {
  const first = await request(RUN);
  const second = await join(first);
  await act(() => {
    button(first, 'Deny').click();
    button(second, 'Allow once').click();
  });
  await Promise.all([finished(first), finished(second)]);
  expect(decisions()).toHaveLength(2);
  await when(() => windows.every(({ page }) => page.sentAnswers.value.length === 0));
  for (const each of windows) expect(cards(each)).toEqual([]);
  const [mine, theirs] = windows.map(({ page }) => page.notices.value.map((notice) => notice.text));
  expect([mine, theirs].sort()).toEqual([[], [expect.stringMatching(/^Another client answered first: (Deny|Allow once)\.$/)]]);
  expect(first.page.chat.value).toEqual(second.page.chat.value);
});

it('says in the row that another client answered, with its name if it is known', async () => {
  const first = await request(RUN);
  const second = await join(first);
  const session = first.page.selected.value!;
  host.publish(session, { type: 'session/activeClientSet', activeClient: { clientId: 'first', displayName: 'VS Code' } });
  await press(first, 'Allow once');
  await Promise.all([finished(first), finished(second)]);
  expect(second.place.querySelector('.tool-reason')?.textContent).toBe('Answered in VS Code: Allow once');
  expect(first.place.querySelector('.tool-reason')).toBeNull();
});

it('says why a decision was refused while the request is open, and can be made again', async () => {
  const window = await request(RUN);
  host.rejectNext = 'Not today';
  await press(window, 'Allow once');
  await when(() => window.page.notices.value.length > 0);
  expect(window.page.notices.value[0]?.text).toBe('The host refused the answer: Not today');
  await press(window, 'Allow once');
  await finished(window);
});

it('cannot be answered twice or without a connection', async () => {
  const window = await request(RUN);
  host.deaf = true;
  await press(window, 'Allow once');
  await press(window, 'Deny');
  expect(card(window).textContent).toContain('Sending…');
  await vi.waitFor(() => expect(decisions()).toHaveLength(1));
  host.cut();
  await when(() => window.page.status.value.kind === 'waiting');
  await vi.waitFor(() => expect(card(window).textContent).toContain('Not connected to the host'));
  host.deaf = false;
  await when(() => window.page.status.value.kind === 'online');
  await vi.waitFor(() => expect(button(window, 'Deny').getAttribute('aria-disabled')).toBe('false'));
  await press(window, 'Deny');
  await finished(window);
  expect(decisions().map((each) => each.approved)).toEqual([true, false]);
});

it('removes the card when the turn is stopped', async () => {
  const window = await request(RUN, PLAN);
  window.page.stopTurn();
  await finished(window);
  expect(cards(window)).toEqual([]);
  expect([...window.place.querySelectorAll('.tool')].map((each) => each.getAttribute('data-outcome'))).toEqual(['skipped', 'skipped']);
  expect(window.page.chat.value).toEqual(host.chatOf(window.page.selected.value!));
});

it('renders a plan and sends its approval', async () => {
  const window = await request(PLAN);
  expect(card(window).querySelector('.plan h1')?.textContent).toBe('Plan');
  expect(card(window).querySelector('.plan strong')?.textContent).toBe('Write');
  await press(window, 'Approve and accept edits');
  await finished(window);
  expect(decisions()).toEqual([expect.objectContaining({ approved: true, selectedOptionId: 'approve-accept-edits' })]);
  expect(window.place.querySelector('.tool .plan strong')?.textContent).toBe('Write');
});

it('shows a plan that is a field of the input', async () => {
  const window = await request({ ...PLAN, input: JSON.stringify({ plan: '## In a *field*' }) });
  expect(card(window).querySelector('.plan h2')?.textContent).toBe('In a field');
  await press(window, 'Approve');
  await finished(window);
  expect(window.place.querySelector('.tool .fold-preview')?.textContent).toBe('In a field');
});

it('sends feedback on a plan, and does not approve while there is feedback', async () => {
  const window = await request(PLAN);
  await type(card(window).querySelector('textarea')!, 'Tests first');
  await press(window, 'Approve');
  expect(card(window).textContent).toContain('Remove the feedback to approve the plan.');
  await press(window, 'Keep planning');
  await finished(window);
  const userSuggestion = { text: 'Tests first', origin: { kind: 'user' } };
  expect(decisions()).toEqual([expect.objectContaining({ approved: false, selectedOptionId: 'keep-planning', userSuggestion })]);
});
