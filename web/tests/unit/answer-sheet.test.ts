import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import type { Answer, InputRequest, Question } from '../../src/ahp/types';
import { AnswerSheet } from '../../src/answer-sheet';

const name: Question = { id: 'name', kind: 'text', message: 'Name?' };
const age: Question = { id: 'age', kind: 'integer', message: 'Age?' };
const draft = (value: string): Answer => ({ state: 'draft', value: { kind: 'text', value } });
const typed = (text: string) => ({ chosen: [], text });

function request(answer?: Answer): InputRequest {
  return { id: 'r', questions: [name, age], ...(answer ? { answers: { name: answer } } : {}) };
}

let sent: [string, Answer][];
let unconfirmed: boolean;
let sheet: AnswerSheet;

beforeEach(() => {
  vi.useFakeTimers();
  sent = [];
  unconfirmed = false;
  sheet = new AnswerSheet(request(), {
    send: (questionId, answer) => sent.push([questionId, answer]),
    isUnconfirmed: () => unconfirmed,
  });
});
afterEach(() => {
  vi.useRealTimers();
});

it('sends one draft for several changes in a row', () => {
  for (const text of ['A', 'An', 'Ann']) {
    sheet.type(name, typed(text));
    vi.advanceTimersByTime(100);
  }
  expect(sent).toEqual([]);
  vi.advanceTimersByTime(300);
  expect(sent).toEqual([['name', draft('Ann')]]);
});

it('sends the draft at once when the field loses the focus, and only once', () => {
  sheet.type(name, typed('Ann'));
  sheet.leave(name);
  vi.runAllTimers();
  expect(sent).toEqual([['name', draft('Ann')]]);
});

it('sends nothing for a number that is incomplete, and nothing after unsent drafts were dropped', () => {
  sheet.type(age, typed('4x'));
  vi.runAllTimers();
  sheet.type(name, typed('Ann'));
  sheet.dropUnsent();
  vi.runAllTimers();
  expect(sent).toEqual([]);
});

it("shows another client's draft", () => {
  sheet.update(request(draft('Bob')));
  expect(sheet.entry(name)).toEqual(typed('Bob'));
});

it("keeps the user's text while the user types, and takes over a later draft after that", () => {
  sheet.type(name, typed('Ann'));
  vi.runAllTimers();
  sheet.update(request(draft('Bob')));
  expect(sheet.entry(name)).toEqual(typed('Ann'));
  sheet.leave(name);
  expect(sheet.entry(name)).toEqual(typed('Ann'));
  sheet.update(request(draft('Carl')));
  expect(sheet.entry(name)).toEqual(typed('Carl'));
});

it('keeps a change that is unsent or unconfirmed when an older draft arrives', () => {
  sheet.change(name, typed('Ann'));
  sheet.update(request(draft('Bob')));
  expect(sheet.entry(name)).toEqual(typed('Ann'));
  vi.runAllTimers();
  unconfirmed = true;
  sheet.update(request(draft('Carl')));
  expect(sheet.entry(name)).toEqual(typed('Ann'));
  unconfirmed = false;
  sheet.update(request(draft('Ann')));
  expect(sheet.entry(name)).toEqual(typed('Ann'));
});

it('keeps the fields of other questions when one draft changes', () => {
  sheet.type(age, typed('4x'));
  sheet.leave(age);
  sheet.update(request(draft('Bob')));
  expect(sheet.entry(age)).toEqual(typed('4x'));
});
