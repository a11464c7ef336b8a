// The line diff of two contents, as the host computes it. The lines are the content of files and may be anything.

import { visibleText } from '../tool-input';

export type LineKind = 'context' | 'added' | 'removed';

/** A piece of a line, and whether it is the part of the line that changed. */
export type LinePart = readonly [text: string, emphasised: boolean];

export interface DiffLine {
  kind: LineKind;
  /** Line numbers, counted from 1, on the side where the line exists. */
  old?: number;
  new?: number;
  parts: readonly LinePart[];
  /** Whether the content ends after this line without a line break. */
  noNewline: boolean;
}

export interface DiffHunk {
  oldStart: number;
  newStart: number;
  lines: readonly DiffLine[];
}

export interface DiffDocument {
  binary: boolean;
  added: number;
  removed: number;
  /** Whether the host left lines out because the diff is too large. */
  truncated: boolean;
  /** Whether every line ends with a carriage return. */
  returns: boolean;
  hunks: readonly DiffHunk[];
}

/** The characters of a line that are shown. The host limits lines to slightly fewer, and says so in them. */
const LINE_CHARACTERS = 2_100;

/** Reads a document; undefined if it is not one. */
export function parseDiff(json: string): DiffDocument | undefined {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return undefined;
  }
  const { binary, added, removed, truncated, hunks } = record(value);
  if (!Array.isArray(hunks) && binary !== true) return undefined;
  const parsed = list(hunks).map(hunkOf);
  return {
    binary: binary === true,
    added: number(added) ?? 0,
    removed: number(removed) ?? 0,
    truncated: truncated === true,
    returns: parsed.every((hunk) => hunk.lines.every(endsWithReturn)),
    hunks: parsed,
  };
}

function hunkOf(value: unknown): DiffHunk {
  const { oldStart, newStart, lines } = record(value);
  return {
    oldStart: number(oldStart) ?? 0,
    newStart: number(newStart) ?? 0,
    lines: list(lines).flatMap((line) => lineOf(line) ?? []),
  };
}

function lineOf(value: unknown): DiffLine | undefined {
  const { kind, old, new: next, parts, noNewline } = record(value);
  if (kind !== 'context' && kind !== 'added' && kind !== 'removed') return undefined;
  const numbers = { old: number(old), new: number(next) };
  return {
    kind,
    ...(numbers.old === undefined ? {} : { old: numbers.old }),
    ...(numbers.new === undefined ? {} : { new: numbers.new }),
    parts: list(parts).flatMap(partOf),
    noNewline: noNewline === true,
  };
}

function partOf(value: unknown): LinePart[] {
  const [text, emphasised] = list(value);
  return typeof text === 'string' ? [[text.replace(/\n$/, ''), emphasised === true]] : [];
}

/**
 * Lines as they are shown: of bounded length, with hidden characters made visible. The carriage returns of a file whose
 * lines all end with one are left out; in any other file they are a difference that the reader has to see.
 */
export function shownLines(lines: readonly DiffLine[], withoutReturns: boolean): DiffLine[] {
  return lines.map((line) => ({ ...line, parts: shownParts(line.parts, withoutReturns) }));
}

function shownParts(parts: readonly LinePart[], withoutReturn: boolean): LinePart[] {
  const shown: LinePart[] = [];
  let room = LINE_CHARACTERS;
  let hidden = 0;
  parts.forEach(([text, emphasised], index) => {
    const whole = index === parts.length - 1 ? text.replace(/\r$/, withoutReturn ? '' : '␍') : text;
    const start = whole.slice(0, room).replace(/[\ud800-\udbff]$/, '');
    room -= start.length;
    hidden += whole.length - start.length;
    if (start !== '') shown.push([visibleText(start), emphasised]);
  });
  return hidden > 0 ? [...shown, [` … ${hidden.toLocaleString()} more characters`, false]] : shown;
}

function endsWithReturn({ parts }: DiffLine): boolean {
  return parts.at(-1)?.[0].endsWith('\r') ?? false;
}

function number(value: unknown): number | undefined {
  return Number.isSafeInteger(value) && Number(value) >= 0 ? Number(value) : undefined;
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}
