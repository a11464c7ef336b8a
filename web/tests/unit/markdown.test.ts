// @vitest-environment jsdom

import { describe, expect, it } from 'vitest';

import { inlineMarkdown, markdownBlocks } from '../../src/markdown/render';

function rendered(text: string): HTMLElement {
  const element = document.createElement('div');
  element.innerHTML = markdownBlocks(text)
    .map((block) => block.html)
    .join('');
  return element;
}

describe('what could do harm', () => {
  it.each([
    '<img src=x onerror="alert(1)">',
    '<script>alert(1)</script>',
    'text <img src=x onerror=alert(1)> text',
    '<svg onload=alert(1)>',
    '<br onclick="alert(1)">',
    '<a href="javascript:alert(1)">x</a>',
    '[x](javascript:alert(1))',
    '[x](data:text/html,<script>alert(1)</script>)',
    '![x](https://elsewhere.example/pixel.png)',
    '![x" onerror="alert(1)](https://elsewhere.example/pixel.png)',
    '[x](https://a.example/"onmouseover="alert(1))',
    '```"><img src=x onerror=alert(1)>\ncode\n```',
    '| <img src=x onerror=alert(1)> |\n|---|\n| <iframe src="//x"></iframe> |',
    '<style>*{display:none}</style>',
  ])('stays text: %s', (text) => {
    const element = rendered(text);
    expect(element.querySelectorAll('img, script, svg, iframe, style, object, form')).toHaveLength(0);
    for (const each of element.querySelectorAll('*')) {
      for (const attribute of each.getAttributeNames()) {
        expect(['href', 'target', 'rel', 'class', 'type', 'align', 'tabindex'], each.outerHTML).toContain(attribute);
      }
      expect(each.getAttribute('href') ?? 'https:').toMatch(/^https?:/);
    }
  });

  it('is shown to the reader as it was written', () => {
    expect(rendered('<b>bold</b> and <thinking>').textContent?.trim()).toBe('<b>bold</b> and <thinking>');
    expect(inlineMarkdown('Run `<b>`')).toBe('Run <code>&lt;b&gt;</code>');
  });
});

it('opens links in a new tab without handing over this one', () => {
  const link = rendered('[inn](https://inn.example/?a=1&b=2)').querySelector('a');
  expect(link?.getAttribute('href')).toBe('https://inn.example/?a=1&b=2');
  expect(link?.getAttribute('target')).toBe('_blank');
  expect(link?.getAttribute('rel')).toBe('noopener noreferrer');
});

it('gives code blocks their language and a copy button, and keeps their text', () => {
  const element = rendered('```rust ignore\nfn main() { a < b }\n```');
  expect(element.querySelector('.code-head span')?.textContent).toBe('rust');
  expect(element.querySelector('button.copy')?.getAttribute('type')).toBe('button');
  expect(element.querySelector('code')?.textContent).toBe('fn main() { a < b }');
});

it('aligns table cells', () => {
  expect(rendered('| a |\n|--:|\n| 1 |').querySelector('td')?.getAttribute('align')).toBe('right');
});

it('changes only the last block while text streams in', () => {
  const text = '# Title\n\nFirst paragraph.\n\n- one\n- two\n\nLast';
  const before = markdownBlocks(text);
  const after = markdownBlocks(`${text} words`);
  expect(after.slice(0, -1)).toEqual(before.slice(0, -1));
  expect(after.at(-1)?.html).toContain('Last words');
});

it('resolves link definitions wherever they stand', () => {
  const text = 'See [the inn][1].\n\nMore.';
  expect(rendered(text).querySelector('a')).toBeNull();
  expect(rendered(`${text}\n\n[1]: https://inn.example`).querySelector('a')?.getAttribute('href')).toBe('https://inn.example');
});
