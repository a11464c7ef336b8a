// @vitest-environment jsdom

import { signal } from '@preact/signals';
import DOMPurify from 'dompurify';
import { render } from 'preact';
import { act } from 'preact/test-utils';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type { ResponsePart, Turn } from '../../src/ahp/types';
import { ErrorBoundary } from '../../src/components/ErrorBoundary';
import { LongText } from '../../src/components/LongText';
import { TurnView } from '../../src/components/TurnView';

let place: HTMLElement;

beforeEach(() => {
  place = document.createElement('div');
  vi.spyOn(console, 'warn').mockImplementation(() => {});
});
afterEach(() => {
  render(null, place);
  vi.restoreAllMocks();
});

function turn(...responseParts: unknown[]): Turn {
  const message = { text: 'Hello', origin: { kind: 'user' } };
  return { id: 't', message, responseParts: responseParts as ResponsePart[], state: 'complete' };
}

async function shown(content: Turn): Promise<string> {
  await act(() => render(<TurnView turn={content} />, place));
  return place.textContent ?? '';
}

it.each([
  ['no tool call', { kind: 'toolCall' }, '{"kind":"toolCall"}'],
  ['a content that is not text', { kind: 'markdown', id: 'p', content: 7 }, '"content":7'],
  ['a result that is not a list', { kind: 'toolCall', toolCall: { status: 'completed', content: 'odd' } }, '"content":"odd"'],
  ['no part at all', null, 'null'],
])('shows the source of a part with %s, and the parts around it', async (_, part, source) => {
  const before = { kind: 'markdown', id: 'a', content: 'Text **before**' };
  const after = { kind: 'markdown', id: 'b', content: 'Text **after**' };
  const text = await shown(turn(before, part, after));
  expect(text).toContain(source);
  // The render budget may postpone a part.
  await vi.waitFor(() => expect([...place.querySelectorAll('strong')].map((each) => each.textContent)).toEqual(['before', 'after']));
});

it('shows the source of Markdown that cannot be rendered, and renders it again when it changes', async () => {
  vi.spyOn(DOMPurify, 'sanitize').mockImplementation(() => {
    throw new RangeError('Maximum call stack size exceeded');
  });
  await shown(turn({ kind: 'markdown', id: 'p', content: 'A **broken** text' }));
  expect(place.querySelector('.markdown .source')?.textContent).toBe('A **broken** text');
  vi.mocked(DOMPurify.sanitize).mockRestore();
  await shown(turn({ kind: 'markdown', id: 'p', content: 'A **broken** text, continued' }));
  await vi.waitFor(() => expect(place.querySelector('.markdown strong')?.textContent).toBe('broken'));
});

it('shows the source of a turn that has no parts', async () => {
  expect(await shown({ ...turn(), responseParts: undefined as unknown as ResponsePart[] })).toContain('"id":"t"');
});

it('tries again when the data of a boundary changes', async () => {
  const value = signal('bad');
  const Part = ({ text }: { text: string }) => {
    if (text === 'bad') throw new Error('cannot render');
    return <b>{text}</b>;
  };
  const Parent = () => (
    <ErrorBoundary of={value.value} fallback={() => <i>source</i>}>
      <Part text={value.value} />
    </ErrorBoundary>
  );
  await act(() => render(<Parent />, place));
  expect(place.innerHTML).toBe('<i>source</i>');
  await act(() => {
    value.value = 'good';
  });
  expect(place.innerHTML).toBe('<b>good</b>');
});

it('shows the first pieces and the last piece of a long text, and more on request', async () => {
  const text = `begin ${'x'.repeat(100_000)} end`;
  await act(() => render(<LongText text={text} />, place));
  expect(place.textContent).toMatch(/^begin[^]*Show more \([\d.,]+ characters are hidden\)[^]* end$/);
  expect(place.textContent!.length).toBeLessThan(50_000);
  for (let button = place.querySelector('button'); button; button = place.querySelector('button')) {
    await act(() => button?.click());
  }
  expect(place.textContent === text).toBe(true);
});

it('shows the newest parts of a turn with many, and more on request', async () => {
  const parts = Array.from({ length: 150 }, (_, index) => ({ kind: 'contentRef', uri: `file:///${index}` }));
  const content = turn(...parts);
  expect(await shown(content)).toMatch(/Show earlier parts \(50 are hidden\)Attached: file:\/\/\/50/);
  await act(() => place.querySelector('button')?.click());
  expect(place.querySelectorAll('.remark')).toHaveLength(150);
});
