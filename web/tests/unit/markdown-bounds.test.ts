// @vitest-environment jsdom

import { expect, it } from 'vitest';

import { MAX_BLOCK_DEPTH, MAX_INLINE_DEPTH } from '../../src/markdown/bounded-tokenizer';
import { MAX_PIECE_CHARACTERS } from '../../src/markdown/pieces';
import { inlineMarkdown, markdownBlocks } from '../../src/markdown/render';

function rendered(text: string): HTMLElement {
  const element = document.createElement('div');
  element.innerHTML = markdownBlocks(text)
    .map((block) => block.html)
    .join('');
  return element;
}

/** How many elements of the kind are nested in each other at most. */
function nesting(root: HTMLElement, selector: string): number {
  let deepest = 0;
  for (const element of root.querySelectorAll(selector)) {
    let depth = 0;
    for (let each: Element | null = element; each; each = each.parentElement) if (each.matches(selector)) depth++;
    deepest = Math.max(deepest, depth);
  }
  return deepest;
}

it.each([
  ['quotes', '>'.repeat(2_000), 'blockquote'],
  ['lists', `${'- '.repeat(2_000)}a`, 'ul'],
  ['numbered lists', '1. '.repeat(2_000), 'ol'],
  ['quotes in lists', '- > '.repeat(1_000), 'ul, blockquote'],
  ['lists by indentation', Array.from({ length: 60 }, (_, depth) => `${'  '.repeat(depth)}- a`).join('\n'), 'ul'],
])('limits the depth of %s', (_, text, selector) => {
  expect(nesting(rendered(text), selector)).toBe(MAX_BLOCK_DEPTH);
});

it('limits the depth of emphasis and keeps its text', () => {
  const element = rendered(`${'**a '.repeat(50)}${' b**'.repeat(50)}`);
  expect(nesting(element, 'strong, em')).toBeLessThanOrEqual(MAX_INLINE_DEPTH);
  expect(element.textContent?.match(/a/g)).toHaveLength(50);
});

it.each(['*', '_', '[a](', '~'])('keeps unmatched delimiters as text: %s', (delimiter) => {
  const text = `x ${delimiter.repeat(4_000 / delimiter.length)}`;
  expect(rendered(text).textContent?.trim() === text).toBe(true);
  expect(inlineMarkdown(text) === text).toBe(true);
});

it('stops searching for delimiters in a piece that consists of them', () => {
  const text = `x ${'*_a'.repeat(MAX_PIECE_CHARACTERS / 3)}`.slice(0, MAX_PIECE_CHARACTERS);
  expect(rendered(`${text}\n\n*after*`).lastElementChild?.innerHTML).toBe('*after*');
  expect(rendered('x *_a\n\n*after*').lastElementChild?.innerHTML).toBe('<em>after</em>');
});

it('renders ordinary nesting in full', () => {
  const element = rendered('> - **bold _and [linked](https://inn.example)_**\n>   1. one\n>      - two');
  expect(element.querySelector('blockquote li strong em a')).not.toBeNull();
  expect(nesting(element, 'ul, ol')).toBe(3);
});

it('escapes text after a raw tag', () => {
  const element = rendered('a <code>b < c & d</code> <kbd>e</kbd>');
  expect(element.textContent?.trim()).toBe('a <code>b < c & d</code> e');
});
