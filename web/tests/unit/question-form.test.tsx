// @vitest-environment jsdom

// Input requests in the page, against a host over a real socket.

import { signal } from '@preact/signals';
import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type { InputRequest, InputResponse, Question } from '../../src/ahp/types';
import { Sidebar } from '../../src/components/Sidebar';
import { TurnView } from '../../src/components/TurnView';
import { FakeHost } from '../fake-host.mjs';
import { when } from './open-page';
import { button, closeWindow, dispatched, openWindow, type PageWindow, type } from './page-window';

const FRUIT: Question = {
  id: 'fruit',
  kind: 'single-select',
  title: 'Fruit',
  message: 'Which one?',
  required: true,
  options: [
    { id: 'a', label: 'Apple', description: 'Red', recommended: true },
    { id: 'p', label: 'Pear' },
  ],
};
const NAME: Question = { id: 'name', kind: 'text', message: 'Your name?', min: 2 };

let host: FakeHost;
let windows: PageWindow[];

beforeEach(async () => {
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

/** Opens a window whose agent asks. */
async function ask(...questions: Question[]): Promise<PageWindow> {
  const asked = await open('first');
  await asked.page.send(`#demo\nask ${JSON.stringify({ id: 'r', message: 'A **question**', questions })}\ntext done`, undefined);
  await vi.waitFor(() => expect(form(asked)).not.toBeNull());
  return asked;
}

async function join(first: PageWindow): Promise<PageWindow> {
  const second = await open('second');
  second.page.select(first.page.selected.value);
  await vi.waitFor(() => expect(form(second)).not.toBeNull());
  return second;
}

const form = ({ place }: PageWindow) => place.querySelector('form');
const option = ({ place }: PageWindow, label: string) =>
  [...place.querySelectorAll('label')].find((each) => each.textContent?.includes(label))?.querySelector('input') as HTMLInputElement;
const field = ({ place }: PageWindow) => place.querySelector('textarea') as HTMLTextAreaElement;
const completions = () => dispatched(host, 'chat/inputCompleted');

it('sends the chosen option after a click on it and on Submit, and shows its label afterwards', async () => {
  const asked = await ask(FRUIT);
  expect(asked.place.querySelector('form strong')?.textContent).toBe('question');
  expect(form(asked)?.textContent).toMatch(/Fruit required.*Which one\?.*AppleRecommendedRedPear/);
  expect(button(asked, 'Submit').disabled).toBe(true);
  await act(() => option(asked, 'Pear').click());
  expect(button(asked, 'Submit').disabled).toBe(false);
  await act(() => button(asked, 'Submit').click());
  await when(() => asked.page.chat.value?.turns.length === 1);
  const answers = { fruit: { state: 'submitted', value: { kind: 'selected', value: 'p' } } };
  expect(completions()).toEqual([{ type: 'chat/inputCompleted', requestId: 'r', response: 'accept', answers }]);
  await vi.waitFor(() => expect(asked.place.querySelector('.answer')?.textContent).toBe('Pear'));
  expect(form(asked)).toBeNull();
  expect(asked.page.chat.value).toEqual(host.chatOf(asked.page.selected.value!));
  expect(asked.page.notices.value).toEqual([]);
});

it('says that it skips an optional question without an answer, and submits only answers within their limits', async () => {
  const asked = await ask({ ...NAME, id: 'one' }, FRUIT, { ...NAME, id: 'two', required: true });
  const [, last] = asked.place.querySelectorAll('textarea');
  await act(() => option(asked, 'Apple').click());
  await type(last!, 'A');
  expect(button(asked, 'Submit and skip 1 question').disabled).toBe(true);
  expect(form(asked)?.textContent).toContain('At least 2 characters.');
  await type(last!, 'Ann');
  await act(() => button(asked, 'Submit and skip 1 question').click());
  await vi.waitFor(() => expect(completions()).toHaveLength(1));
  expect(completions()[0].answers).toEqual({
    one: { state: 'skipped' },
    fruit: { state: 'submitted', value: { kind: 'selected', value: 'a' } },
    two: { state: 'submitted', value: { kind: 'text', value: 'Ann' } },
  });
});

it('takes free text instead of an option, or in addition to several', async () => {
  const asked = await ask(
    { ...FRUIT, allowFreeformInput: true },
    {
      ...FRUIT,
      id: 'more',
      kind: 'multi-select',
      allowFreeformInput: true,
      options: [
        { id: 'f', label: 'Fig' },
        { id: 'k', label: 'Kiwi' },
      ],
    },
  );
  const [instead, more] = asked.place.querySelectorAll<HTMLInputElement>('input[type=text]');
  await type(instead!, 'Plum');
  await act(() => option(asked, 'Pear').click());
  expect(instead!.value).toBe('');
  await type(instead!, 'Plum');
  expect(option(asked, 'Pear').checked).toBe(false);
  for (const label of ['Kiwi', 'Fig', 'Kiwi']) await act(() => option(asked, label).click());
  await type(more!, 'Lime');
  await act(() => button(asked, 'Submit').click());
  await vi.waitFor(() => expect(completions()).toHaveLength(1));
  expect(completions()[0].answers).toEqual({
    fruit: { state: 'submitted', value: { kind: 'selected', value: '', freeformValues: ['Plum'] } },
    more: { state: 'submitted', value: { kind: 'selected-many', value: ['f'], freeformValues: ['Lime'] } },
  });
});

it('sends no empty answer: a question is skipped by a button of its own, not by Enter', async () => {
  const asked = await ask({ id: 'sure', kind: 'boolean', message: 'Sure?', defaultValue: true });
  expect(option(asked, 'Yes').checked).toBe(true);
  await act(() => button(asked, 'Clear the answer').click());
  expect(option(asked, 'Yes').checked).toBe(false);
  expect(button(asked, 'Submit').disabled).toBe(true);
  await act(() => {
    form(asked)?.requestSubmit();
  });
  expect(completions()).toEqual([]);
  await act(() => button(asked, 'Skip the question').click());
  await vi.waitFor(() => expect(completions()[0]?.answers).toEqual({ sure: { state: 'skipped' } }));
});

it.each<[string, InputResponse, string]>([
  ['Decline', 'decline', 'Declined'],
  ['Cancel', 'cancel', 'Cancelled'],
])('sends %s without answers and shows it', async (label, response, outcome) => {
  const asked = await ask(FRUIT);
  await act(() => button(asked, label).click());
  await vi.waitFor(() => expect(asked.place.querySelector('.answer')?.textContent).toBe(outcome));
  expect(completions()).toEqual([{ type: 'chat/inputCompleted', requestId: 'r', response }]);
});

it('shares drafts with another window, except in the field that its user types in', async () => {
  const first = await ask(NAME, FRUIT);
  const second = await join(first);
  await type(field(first), 'Ann');
  await vi.waitFor(() => expect(field(second).value).toBe('Ann'));
  expect(dispatched(host, 'chat/inputAnswerChanged')).toHaveLength(1);
  await act(() => {
    field(first).dispatchEvent(new Event('blur'));
  });
  await type(field(second), 'Bob');
  await vi.waitFor(() => expect(field(first).value).toBe('Bob'));
  await type(field(first), 'Anna');
  await when(() => JSON.stringify(second.page.chat.value).includes('Anna'));
  expect(field(second).value).toBe('Bob');
  await act(() => option(second, 'Pear').click());
  await vi.waitFor(() => expect(option(first, 'Pear').checked).toBe(true));
  expect([...first.page.notices.value, ...second.page.notices.value]).toEqual([]);
});

it('shows the outcome in every window after one of them answered, and a notice in the slower one', async () => {
  const first = await ask(FRUIT);
  const second = await join(first);
  await act(() => option(first, 'Pear').click());
  await act(() => option(second, 'Apple').click());
  await act(() => {
    button(first, 'Submit').click();
    button(second, 'Submit').click();
  });
  await vi.waitFor(() => {
    for (const each of windows) expect(each.place.querySelector('.answer')?.textContent).toMatch(/Pear|Apple/);
  });
  expect(completions()).toHaveLength(2);
  await when(() => windows.every(({ page }) => page.sentAnswers.value.length === 0));
  const [one, two] = windows.map(({ place }) => place.querySelector('.answer')?.textContent);
  expect(one).toBe(two);
  for (const each of windows) expect(form(each)).toBeNull();
  const notices = windows.flatMap(({ page }) => page.notices.value.map((notice) => notice.text));
  expect(notices).toEqual(['Another client answered first.']);
});

it('says why an answer was refused while the request is open, and can be submitted again', async () => {
  const asked = await ask(FRUIT);
  await act(() => option(asked, 'Pear').click());
  await when(() => JSON.stringify(asked.page.chat.value).includes('draft'));
  host.rejectNext = 'Not today';
  await act(() => button(asked, 'Submit').click());
  await when(() => asked.page.notices.value.length > 0);
  expect(asked.page.notices.value[0]?.text).toBe('The host refused the answer: Not today');
  await vi.waitFor(() => expect(button(asked, 'Submit').disabled).toBe(false));
  await act(() => button(asked, 'Submit').click());
  await when(() => asked.page.chat.value?.turns.length === 1);
});

it('can be answered after a reconnect if the answer was lost with the connection', async () => {
  const asked = await ask(FRUIT);
  await act(() => option(asked, 'Pear').click());
  host.deaf = true;
  await act(() => button(asked, 'Submit').click());
  expect(button(asked, 'Submit').disabled).toBe(true);
  expect(form(asked)?.textContent).toContain('Sending…');
  host.cut();
  await when(() => asked.page.status.value.kind === 'waiting');
  await vi.waitFor(() => expect(form(asked)?.textContent).toContain('Not connected to the host'));
  host.deaf = false;
  await vi.waitFor(() => expect(button(asked, 'Submit').disabled).toBe(false));
  expect(option(asked, 'Pear').checked).toBe(true);
  await act(() => button(asked, 'Submit').click());
  await when(() => asked.page.chat.value?.turns.length === 1);
});

it('shows a request that was never answered without a form after its turn was stopped', async () => {
  const asked = await ask(FRUIT);
  asked.page.stopTurn();
  await vi.waitFor(() => expect(asked.place.querySelector('.answer')?.textContent).toBe('Not answered'));
  expect(form(asked)).toBeNull();
});

it('marks a session that waits for an answer in the list, whatever its agent reports', async () => {
  const asked = await ask(FRUIT);
  render(<Sidebar page={asked.page} open={signal(false)} />, asked.place);
  host.notifyRoot('root/sessionSummaryChanged', { session: asked.page.selected.value, changes: { activity: 'Reading' } });
  await when(() => asked.page.rows.value[0]?.activity === 'Reading');
  await vi.waitFor(() => expect(asked.place.querySelector('.row-detail')?.textContent).toMatch(/^Waiting for you/));
  asked.page.stopTurn();
  await vi.waitFor(() => expect(asked.place.querySelector('.row-detail')?.textContent).toMatch(/^Reading/));
});

async function show(request: Partial<InputRequest>): Promise<HTMLElement> {
  const place = document.createElement('div');
  const parts = [{ kind: 'inputRequest' as const, request: { id: 'r', ...request } }];
  const turn = { id: 't', startedAt: '', message: { text: 'hi', origin: { kind: 'user' } }, responseParts: parts };
  await act(() => render(<TurnView turn={turn} />, place));
  return place;
}

it('opens a web address only by a click in a new tab, and shows any other address as text', async () => {
  const link = (await show({ url: 'https://exámple.com/a' })).querySelector('a');
  expect(link?.outerHTML).toBe(
    '<a href="https://xn--exmple-qta.com/a" target="_blank" rel="noopener noreferrer">https://xn--exmple-qta.com/a</a>',
  );
  for (const url of ['javascript:alert(1)', 'not an address']) {
    const place = await show({ url });
    expect(place.querySelector('a')).toBeNull();
    expect(place.textContent).toContain(url);
  }
});

it('does not offer to skip when an answer is required', async () => {
  const asked = await ask(FRUIT, NAME);
  expect(button(asked, 'Skip all questions')).toBeUndefined();
  const other = await show({ questions: [NAME, { ...NAME, id: 'b' }] });
  expect(other.textContent).toContain('Skip all questions');
});

it('limits how many questions and options are shown at first', async () => {
  const options = Array.from({ length: 120 }, (_, index) => ({ id: `${index}`, label: `Option ${index}` }));
  const place = await show({ questions: [{ ...FRUIT, options }, ...Array.from({ length: 60 }, () => NAME)] });
  expect(place.querySelectorAll('input[type=radio]')).toHaveLength(50);
  expect(place.querySelectorAll('.question-field')).toHaveLength(20);
  const more = [...place.querySelectorAll('button')].find((each) => each.textContent === 'Show more options (70 are hidden)');
  await act(() => more?.click());
  expect(place.querySelectorAll('input[type=radio]')).toHaveLength(100);
});

it('shows markup in questions and options as text', async () => {
  const markup = '<img src=x onerror=alert(1)>';
  const place = await show({
    message: markup,
    questions: [{ ...FRUIT, title: markup, message: markup, options: [{ id: 'x', label: markup }] }],
  });
  expect(place.querySelector('img')).toBeNull();
  expect(place.textContent?.split(markup)).toHaveLength(5);
});

it.each([{ questions: 7 }, { questions: [null] }, { questions: [{ ...FRUIT, options: undefined }] }])(
  'shows the source of the malformed request %o',
  async (request) => {
    vi.spyOn(console, 'warn').mockImplementation(() => {});
    const place = await show(request as unknown as InputRequest);
    expect(place.textContent).toContain('This part cannot be shown');
  },
);

it('blocks Submit for a required question of an unknown kind', async () => {
  const asked = await ask({ ...NAME, kind: 'colour', required: true } as unknown as Question);
  expect(form(asked)?.textContent).toContain('Answer it in another client');
  expect(button(asked, 'Submit').disabled).toBe(true);
});
