// Converts between the fields of a question and its answer in the protocol. Questions and answers come from agents and
// other clients and may be anything: what does not match is treated as absent.

import type { Answer, Answers, AnswerValue, InputRequest, Question, SelectQuestion } from './ahp/types';

/** What the fields of one question contain. */
export interface Entry {
  /** Ids of the chosen options; `true` or `false` for a boolean question. */
  chosen: readonly string[];
  /** Typed text: the answer itself, or the free text of a selection. */
  text: string;
}

export const EMPTY: Entry = { chosen: [], text: '' };

const KNOWN_KINDS: readonly string[] = ['text', 'number', 'integer', 'boolean', 'single-select', 'multi-select'];

/** Whether the page has fields for this kind of question. */
export function isKnown(question: Question): boolean {
  return KNOWN_KINDS.includes(question.kind);
}

export function isSelect(question: Question): question is SelectQuestion {
  return question.kind === 'single-select' || question.kind === 'multi-select';
}

export function isEmpty(entry: Entry): boolean {
  return entry.chosen.length === 0 && entry.text.trim() === '';
}

/** The answer that a request has for a question. An id from an agent may be the name of an inherited property. */
export function sharedAnswer(request: InputRequest, question: Question): Answer | undefined {
  const { answers } = request;
  return answers && Object.hasOwn(answers, question.id) ? answers[question.id] : undefined;
}

/** The fields for an answer; without an answer, the question's default. */
export function entryOf(question: Question, answer: Answer | undefined): Entry {
  if (!answer) return defaultOf(question);
  if (answer.state === 'skipped') return EMPTY;
  const { value } = answer;
  switch (value?.kind) {
    case 'text':
      return typed(value.value);
    case 'number':
      return typed(value.value);
    case 'boolean':
      return { chosen: [String(value.value)], text: '' };
    case 'selected':
      return selected(question, [value.value], value.freeformValues);
    case 'selected-many':
      return selected(question, value.value, value.freeformValues);
    default:
      return EMPTY;
  }
}

/** The value of the fields; undefined if they are empty or not a value of this kind. */
export function answerValue(question: Question, entry: Entry): AnswerValue | undefined {
  if (isEmpty(entry)) return undefined;
  const text = entry.text.trim();
  const [first] = entry.chosen;
  switch (question.kind) {
    case 'text':
      return { kind: 'text', value: entry.text };
    case 'number':
    case 'integer': {
      const value = Number(text);
      const fits = question.kind === 'integer' ? Number.isInteger(value) : Number.isFinite(value);
      return fits ? { kind: 'number', value } : undefined;
    }
    case 'boolean':
      return { kind: 'boolean', value: first === 'true' };
    case 'single-select':
      // Free text replaces the choice.
      if (text !== '') return { kind: 'selected', value: '', freeformValues: [text] };
      return first === undefined ? undefined : { kind: 'selected', value: first };
    case 'multi-select':
      return { kind: 'selected-many', value: [...entry.chosen], ...(text === '' ? {} : { freeformValues: [text] }) };
    default:
      return undefined;
  }
}

/** The draft that other clients see; undefined if the fields are not a value of the question's kind. */
export function draftOf(question: Question, entry: Entry): Answer | undefined {
  if (isEmpty(entry)) return { state: 'skipped' };
  const value = answerValue(question, entry);
  return value && { state: 'draft', value };
}

/** The answers that complete a request. An empty field is a skipped question. */
export function finalAnswers(questions: readonly Question[], entry: (question: Question) => Entry): Answers {
  const answers = questions.filter(isKnown).map((question): [string, Answer] => {
    const value = answerValue(question, entry(question));
    return [question.id, value ? { state: 'submitted', value } : { state: 'skipped' }];
  });
  return Object.fromEntries(answers);
}

/** Why the fields cannot be submitted; undefined if they can. */
export function problemOf(question: Question, entry: Entry): string | undefined {
  if (isEmpty(entry)) return question.required === true ? 'An answer is required' : undefined;
  switch (question.kind) {
    case 'text':
      return beyond(question, [...entry.text].length, 'characters');
    case 'number':
    case 'integer': {
      const value = answerValue(question, entry);
      if (value?.kind !== 'number') return question.kind === 'integer' ? 'Not a whole number' : 'Not a number';
      return beyond(question, value.value, '');
    }
    case 'multi-select':
      return beyond(question, entry.chosen.length + (entry.text.trim() === '' ? 0 : 1), 'answers');
    default:
      return undefined;
  }
}

/** An answer in words: the labels of the chosen options, or the text. Undefined if the question was not answered. */
export function answerText(question: Question, answer: Answer | undefined): string | undefined {
  if (!answer || answer.state === 'skipped') return undefined;
  const entry = entryOf(question, answer);
  const options = isSelect(question) ? question.options : [];
  const labels = entry.chosen.map((id) => {
    if (question.kind === 'boolean') return id === 'true' ? 'Yes' : 'No';
    return options.find((option) => option.id === id)?.label ?? id;
  });
  return [...labels, entry.text].filter((text) => text !== '').join(', ') || undefined;
}

function defaultOf(question: Question): Entry {
  switch (question.kind) {
    case 'text':
    case 'number':
    case 'integer':
      return typed(question.defaultValue);
    case 'boolean':
      return typeof question.defaultValue === 'boolean' ? { chosen: [String(question.defaultValue)], text: '' } : EMPTY;
    default:
      return EMPTY;
  }
}

function typed(value: unknown): Entry {
  return typeof value === 'string' || typeof value === 'number' ? { chosen: [], text: String(value) } : EMPTY;
}

/** Values that are not options are free text. */
function selected(question: Question, values: unknown, freeform: unknown): Entry {
  const options = isSelect(question) ? question.options : [];
  const known = texts(values).filter((value) => options.some((option) => option.id === value));
  const others = texts(values).filter((value) => value !== '' && !known.includes(value));
  const free = texts(freeform);
  return { chosen: known, text: (free.length > 0 ? free : others).join(', ') };
}

function texts(values: unknown): string[] {
  return Array.isArray(values) ? values.filter((value) => typeof value === 'string') : [];
}

function beyond({ min, max }: { min?: number; max?: number }, value: number, unit: string): string | undefined {
  if (typeof min === 'number' && value < min) return `At least ${min} ${unit}`.trimEnd();
  if (typeof max === 'number' && value > max) return `At most ${max} ${unit}`.trimEnd();
  return undefined;
}
