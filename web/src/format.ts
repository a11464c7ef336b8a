// Formats times, sizes, directories and session states for display. The values come from agents and may be anything:
// what is not of the expected type or range is left out.

import { type Markdownish, Status, type Uri } from './ahp/types';

export type Activity = 'idle' | 'running' | 'waiting' | 'error';

export function activityOf(status: number): Activity {
  const bits = status & Status.ActivityMask;
  if ((bits & Status.InputNeeded) === Status.InputNeeded) return 'waiting';
  if (bits & Status.InProgress) return 'running';
  if (bits & Status.Error) return 'error';
  return 'idle';
}

export const ACTIVITY_LABEL: Record<Activity, string> = {
  idle: 'Idle',
  running: 'Working',
  waiting: 'Waiting for you',
  error: 'Ended in an error',
};

export function plainText(text: Markdownish | undefined): string {
  const plain = typeof text === 'object' && text !== null ? text.markdown : text;
  return typeof plain === 'string' ? plain : '';
}

/** The most characters of a label; the style sheet shows fewer. */
const LABEL_CHARACTERS = 200;
/** Control characters, and those that change the direction of the text after them. */
const NOT_IN_LABELS = /[\p{Cc}\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

/** A title, name or path as a label: one line of bounded length that does not affect the text around it. */
export function oneLine(text: unknown, limit = LABEL_CHARACTERS): string {
  if (typeof text !== 'string') return '';
  const start = text.slice(0, limit).replace(NOT_IN_LABELS, (character) => (/\s/.test(character) ? ' ' : '\ufffd'));
  return text.length > limit ? `${start.replace(/[\ud800-\udbff]$/, '')}…` : start;
}

/** The source of a part that cannot be shown: its text if it has one, else everything. */
export function sourceOf(value: unknown): string {
  const content = (value as { content?: unknown } | null | undefined)?.content;
  if (typeof content === 'string') return content;
  try {
    return JSON.stringify(value) ?? String(value);
  } catch {
    return 'The data is nested too deeply.';
  }
}

/** JSON that is longer or nested more deeply is shown as it is: indentation could multiply its size. */
const INDENTED_CHARACTERS = 50_000;
const INDENTED_DEPTH = 20;

/** The input of a tool: mostly JSON, which is shown with line breaks. */
export function readableInput(input: string): string {
  if (input.length > INDENTED_CHARACTERS) return input;
  try {
    const value: unknown = JSON.parse(input);
    return depthWithin(value, INDENTED_DEPTH) ? JSON.stringify(value, null, 2) : input;
  } catch {
    return input;
  }
}

/** Whether a value is nested no deeper than this. */
export function depthWithin(value: unknown, depth: number): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return depth > 0 && Object.values(value).every((each) => depthWithin(each, depth - 1));
}

/** The age of a time, in short form for a list row. */
export function ago(timestamp: string, now: number): string {
  const seconds = Math.round((now - Date.parse(timestamp)) / 1000);
  if (Number.isNaN(seconds)) return '';
  if (seconds < 45) return 'now';
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  if (hours < 24) return `${hours} h`;
  const days = Math.round(hours / 24);
  return days < 30 ? `${days} d` : new Date(timestamp).toLocaleDateString();
}

export function duration(milliseconds: number | undefined): string {
  if (!isCount(milliseconds)) return '';
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return `${count.format(minutes)} min ${Math.round(seconds % 60)} s`;
}

/** A number of bytes. */
export function dataSize(bytes: unknown): string {
  if (!isCount(bytes)) return '';
  if (bytes < 1000) return `${bytes} bytes`;
  return bytes < 1_000_000 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** Whether this is a number of things or milliseconds that can be meant. */
export function isCount(value: unknown): value is number {
  return typeof value === 'number' && value >= 0 && value <= Number.MAX_SAFE_INTEGER;
}

export const count = new Intl.NumberFormat();

/** The path that a `file:` URI names; any other URI is shown as it is. */
export function directoryPath(uri: Uri): string {
  if (typeof uri !== 'string') return '';
  if (!uri.startsWith('file://')) return uri;
  try {
    const path = decodeURIComponent(new URL(uri).pathname);
    return /^\/[A-Za-z]:/.test(path) ? path.slice(1) : path;
  } catch {
    return uri;
  }
}

/** The `file:` URI of an absolute path that the user typed; undefined for any other text. */
export function directoryUri(path: string): Uri | undefined {
  const typed = path.trim();
  if (typed.startsWith('file://')) return typed;
  const absolute = /^[A-Za-z]:[\\/]/.test(typed) ? `/${typed.replaceAll('\\', '/')}` : typed;
  if (!absolute.startsWith('/')) return undefined;
  const encoded = absolute.split('/').map((segment) => encodeURIComponent(segment).replaceAll('%3A', ':'));
  return `file://${encoded.join('/')}`;
}

/** The last component of a path: the name of the folder. */
export function folderName(uri: Uri): string {
  return directoryPath(uri).replace(/\/+$/, '').split('/').at(-1) || '/';
}
