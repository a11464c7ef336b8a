import { describe, expect, it } from 'vitest';

import type { Answer, AnswerValue, Question } from '../../src/ahp/types';
import { answerText, draftOf, EMPTY, type Entry, entryOf, finalAnswers, problemOf, sharedAnswer } from '../../src/question-entry';

const base = { id: 'q', message: 'Which?' };
const options = [
  { id: 'a', label: 'Apple' },
  { id: 'b', label: 'Bread' },
];
const text: Question = { ...base, kind: 'text', min: 2, max: 4 };
const number: Question = { ...base, kind: 'number', min: 0, max: 1 };
const integer: Question = { ...base, kind: 'integer' };
const boolean: Question = { ...base, kind: 'boolean' };
const single: Question = { ...base, kind: 'single-select', options, allowFreeformInput: true };
const multi: Question = { ...base, kind: 'multi-select', options, allowFreeformInput: true, min: 2, max: 2 };
const unknown = { ...base, kind: 'colour', required: true } as unknown as Question;

const typed = (words: string): Entry => ({ chosen: [], text: words });
const chosen = (...ids: string[]): Entry => ({ chosen: ids, text: '' });

describe('an entry and its answer', () => {
  it.each<[string, Question, Entry, AnswerValue, string]>([
    ['text', text, typed('abc'), { kind: 'text', value: 'abc' }, 'abc'],
    ['a number', number, typed('0.5'), { kind: 'number', value: 0.5 }, '0.5'],
    ['zero', integer, typed('0'), { kind: 'number', value: 0 }, '0'],
    ['no', boolean, chosen('false'), { kind: 'boolean', value: false }, 'No'],
    ['an option', single, chosen('b'), { kind: 'selected', value: 'b' }, 'Bread'],
    ['free text', single, typed('Cake'), { kind: 'selected', value: '', freeformValues: ['Cake'] }, 'Cake'],
    ['two options', multi, chosen('b', 'a'), { kind: 'selected-many', value: ['b', 'a'] }, 'Bread, Apple'],
    [
      'an option and free text',
      multi,
      { chosen: ['a'], text: 'Cake' },
      { kind: 'selected-many', value: ['a'], freeformValues: ['Cake'] },
      'Apple, Cake',
    ],
  ])('convert %s in both directions and to words', (_, question, entry, value, words) => {
    expect(draftOf(question, entry)).toEqual({ state: 'draft', value });
    const submitted: Answer = { state: 'submitted', value };
    expect(finalAnswers([question], () => entry)).toEqual({ q: submitted });
    expect(entryOf(question, submitted)).toEqual(entry);
    expect(answerText(question, submitted)).toBe(words);
    expect(problemOf({ ...question, required: true }, entry)).toBeUndefined();
  });

  it.each([text, number, integer, boolean, single, multi])('skip an empty %o and reject it if it is required', (question) => {
    for (const empty of [EMPTY, typed('  ')]) {
      expect(finalAnswers([question], () => empty)).toEqual({ q: { state: 'skipped' } });
      expect(problemOf(question, empty)).toBeUndefined();
      expect(problemOf({ ...question, required: true }, empty)).toBe('An answer is required');
    }
    expect(entryOf(question, { state: 'skipped' })).toEqual(EMPTY);
  });

  it.each<[Question, Entry, string]>([
    [text, typed('a'), 'At least 2 characters'],
    [text, typed('abcde'), 'At most 4 characters'],
    [number, typed('2'), 'At most 1'],
    [number, typed('-1'), 'At least 0'],
    [number, typed('many'), 'Not a number'],
    [number, typed('Infinity'), 'Not a number'],
    [integer, typed('1.5'), 'Not a whole number'],
    [multi, chosen('a'), 'At least 2 answers'],
    [multi, { chosen: ['a', 'b'], text: 'c' }, 'At most 2 answers'],
  ])('report a problem with %o: %o', (question, entry, problem) => {
    expect(problemOf(question, entry)).toBe(problem);
  });

  it('count characters like the host, which does not count surrogates', () => {
    expect(problemOf(text, typed('🏮🏮🏮🏮'))).toBeUndefined();
  });

  it('share no draft that the host would reject', () => {
    expect(draftOf(integer, typed('1.5'))).toBeUndefined();
    expect(draftOf(number, typed('1e'))).toBeUndefined();
    expect(draftOf(text, EMPTY)).toEqual({ state: 'skipped' });
  });
});

it('starts with the default of a question, until it is answered or skipped', () => {
  expect(entryOf({ ...base, kind: 'text', defaultValue: 'me' }, undefined)).toEqual(typed('me'));
  expect(entryOf({ ...base, kind: 'integer', defaultValue: 0 }, undefined)).toEqual(typed('0'));
  expect(entryOf({ ...base, kind: 'boolean', defaultValue: false }, undefined)).toEqual(chosen('false'));
  expect(entryOf({ ...base, kind: 'text', defaultValue: 'me' }, { state: 'skipped' })).toEqual(EMPTY);
});

it('sends no answer to a question of an unknown kind', () => {
  expect(finalAnswers([unknown], () => typed('red'))).toEqual({});
});

it('treats malformed answers as empty', () => {
  for (const value of [null, 7, { kind: 'text', value: {} }, { kind: 'selected-many', value: 'a' }, { kind: 'selected' }]) {
    expect(entryOf(single, { state: 'draft', value } as unknown as Answer)).toEqual(EMPTY);
  }
});

it('finds no answer under the name of an inherited property', () => {
  expect(sharedAnswer({ id: 'r', answers: {} }, { ...text, id: 'constructor' })).toBeUndefined();
});
