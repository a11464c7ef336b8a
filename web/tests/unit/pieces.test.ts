import { describe, expect, it } from 'vitest';

import { MAX_COMPLEX_CHARACTERS, MAX_PIECE_CHARACTERS, MAX_PIECE_LINES, Pieces } from '../../src/markdown/pieces';

const KINDS = { Markdown: () => Pieces.ofMarkdown(), 'plain text': () => Pieces.ofPlainText() };

const TEXTS = {
  'one word': 'x'.repeat(50_000),
  'surrogate pairs': `a${'😀'.repeat(20_000)}`,
  'empty lines': '\n'.repeat(5_000),
  'short lines': 'a\n'.repeat(5_000),
  paragraphs: 'Some words of a paragraph.\n\n'.repeat(2_000),
  'Thai without spaces': 'กำ'.repeat(10_000),
};

describe.each(Object.entries(KINDS))('pieces of %s', (_, create) => {
  it.each(Object.entries(TEXTS))('are bounded and complete: %s', (_name, text) => {
    const pieces = create().update(text);
    expect(pieces.join('')).toBe(text);
    for (const piece of pieces) {
      expect(piece.length).toBeLessThanOrEqual(MAX_PIECE_CHARACTERS);
      expect(piece.split('\n').length).toBeLessThanOrEqual(MAX_PIECE_LINES + 1);
      expect(piece).not.toMatch(/[\ud800-\udbff]$/);
    }
  });

  it.each(Object.entries(TEXTS))('do not move while text is appended: %s', (_name, text) => {
    const growing = create();
    for (let length = 0; length < text.length; length += 997) growing.update(text.slice(0, length));
    expect(growing.update(text)).toEqual(create().update(text));
  });

  it('start again for a text that does not continue the last one', () => {
    const pieces = create();
    pieces.update('x'.repeat(20_000));
    expect(pieces.update('another')).toEqual(['another']);
  });
});

it('keeps finished pieces while a text streams in', () => {
  const pieces = Pieces.ofMarkdown();
  const text = 'Some words of a paragraph.\n\n'.repeat(1_000);
  const before = pieces.update(text);
  const after = pieces.update(`${text}The end.`);
  expect(after.slice(0, -1)).toEqual(before.slice(0, -1));
  expect(after.at(-1)).toBe(`${before.at(-1)}The end.`);
});

it('cuts Markdown before a top-level block rather than inside of a list', () => {
  const list = '- item\n\n'.repeat(900);
  const [first, second] = Pieces.ofMarkdown().update(`${'word '.repeat(900)}\n\nParagraph\n\n${list}`);
  expect(first).toMatch(/\n\n$/);
  expect(second).toMatch(/^Paragraph/);
});

it('opens a fence again that a cut leaves open', () => {
  const code = 'let x = 1;\n'.repeat(1_000);
  const pieces = Pieces.ofMarkdown().update(`\`\`\`rust ignore\n${code}\`\`\`\n\nAfter`);
  expect(pieces.length).toBeGreaterThan(1);
  for (const piece of pieces.slice(1)) expect(piece).toMatch(/^```rust\nlet x/);
  expect(pieces.at(-1)).toMatch(/\n```\n\nAfter$/);
});

it('does not open a fence again that is closed', () => {
  const pieces = Pieces.ofMarkdown().update(`~~~\n\`\`\`\n~~~\n\n${'words\n\n'.repeat(1_500)}`);
  expect(pieces[1]).toMatch(/^words/);
});

it('puts fewer characters into a piece where line breaking is slow', () => {
  const [first] = Pieces.ofPlainText().update('\u0e33'.repeat(5_000));
  expect(first).toHaveLength(MAX_COMPLEX_CHARACTERS);
});
