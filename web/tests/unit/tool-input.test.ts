import { expect, it } from 'vitest';

import { inputFields, jsonObject, visibleText } from '../../src/tool-input';

it('shows the fields of a JSON object with real line breaks, and marks the sides of an edit', () => {
  const input = JSON.stringify({ nested: { a: [1] }, new_string: '', old_string: 'one\ntwo', file_path: '/a', limit: 3 });
  expect(inputFields(input)).toEqual([
    { name: 'file_path', text: '/a' },
    { name: 'limit', text: '3' },
    { name: 'old_string', text: 'one\ntwo', change: 'removed' },
    { name: 'new_string', text: '', change: 'added' },
    { name: 'nested', text: '{\n  "a": [\n    1\n  ]\n}' },
  ]);
});

it.each([
  ['a command', 'npm test'],
  ['a list', '["a"]'],
  ['many fields', JSON.stringify(Object.fromEntries(Array.from({ length: 100 }, (_, index) => [`f${index}`, index])))],
  ['deep nesting', `{"a":${'['.repeat(100)}${']'.repeat(100)}}`],
])('shows %s as it is', (_, input) => {
  expect(inputFields(input)).toEqual([{ text: input }]);
});

it.each([
  ['a direction mark', 'echo \u202egnp.sh', 'echo ⟨U+202E⟩gnp.sh'],
  ['a carriage return', 'rm -rf ~\rls', 'rm -rf ~⟨U+000D⟩ls'],
  ['an escape sequence', '\u001b[2Kls', '⟨U+001B⟩[2Kls'],
  ['a zero-width space', 'l\u200bs', 'l⟨U+200B⟩s'],
  ['an unusual space', 'rm\u00a0x', 'rm⟨U+00A0⟩x'],
  ['a tag character', 'a\u{e0041}', 'a⟨U+E0041⟩'],
  ['plain text', 'a\tb\nc ä 漢 🙂', 'a\tb\nc ä 漢 🙂'],
])('makes %s visible', (_, text, expected) => {
  expect(visibleText(text)).toBe(expected);
});

it('makes hidden characters in field names and values visible', () => {
  expect(inputFields(JSON.stringify({ 'a\u200b': '\u202eb' }))).toEqual([{ name: 'a⟨U+200B⟩', text: '⟨U+202E⟩b' }]);
});

it('tells JSON objects from other input', () => {
  expect(['{"a":1}', '{}', '[]', '1', '{"a"', 'ls'].map(jsonObject)).toEqual([{ a: 1 }, {}, undefined, undefined, undefined, undefined]);
});
