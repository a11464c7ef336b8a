// The input of a tool in a form that a person can check: the fields of a JSON object one by one, with real line breaks,
// and without characters that would hide a part of the text.

import { depthWithin } from './format';

export interface InputField {
  /** Absent if the input is not a JSON object. */
  name?: string;
  text: string;
  /** Set for text that an edit removes or adds. */
  change?: 'removed' | 'added';
}

/** Longer input is shown as it is. */
const PARSED_CHARACTERS = 200_000;
const MAX_DEPTH = 20;
/** Longer text is shown after shorter text. */
const SHORT_CHARACTERS = 200;
const MAX_FIELDS = 40;

const CHANGES = new Map<string, InputField['change']>([
  ['old_string', 'removed'],
  ['new_string', 'added'],
]);

export function inputFields(input: string): InputField[] {
  const object = shownObject(input);
  if (!object) return [{ text: visibleText(input) }];
  const fields = Object.entries(object).map(([name, value]) => {
    const text = visibleText(typeof value === 'string' ? value : (JSON.stringify(value, null, 2) ?? ''));
    const change = CHANGES.get(name);
    return { name: visibleText(name), text, ...(change ? { change } : {}) };
  });
  return fields.sort((one, other) => place(one) - place(other));
}

/** What a call is about, such as a path, comes before long content, and removed text before added text. */
function place({ text, change }: InputField): number {
  if (change) return change === 'removed' ? 1 : 2;
  return text.length > SHORT_CHARACTERS || text.includes('\n') ? 3 : 0;
}

/** The JSON object that an input is; undefined if it is anything else. */
export function jsonObject(input: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(input);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

/** Replaces characters that are invisible or change the order of the text around them by their code. */
export function visibleText(text: string): string {
  return text.replace(HIDDEN, (character) => `⟨U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, '0')}⟩`);
}

/** Control characters except tab and line feed, format characters such as direction marks, and unusual spaces. */
const HIDDEN = /[\p{Cf}\p{Zl}\p{Zp}\u115f\u1160\u2800\u3164\uffa0]|(?![\t\n])\p{Cc}|(?! )\p{Zs}/gu;

/** The object of an input that is small enough to be shown field by field. */
function shownObject(input: string): Record<string, unknown> | undefined {
  if (input.length > PARSED_CHARACTERS) return undefined;
  const object = jsonObject(input);
  return object && depthWithin(object, MAX_DEPTH) && Object.keys(object).length <= MAX_FIELDS ? object : undefined;
}
