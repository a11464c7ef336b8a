// Formats times, sizes, directories and session states for display.

import { type Markdownish, Status, type Uri, type Usage } from './ahp/types';

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
  if (text === undefined) return '';
  return typeof text === 'string' ? text : text.markdown;
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

export function duration(milliseconds: number): string {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  return `${minutes} min ${Math.round(seconds % 60)} s`;
}

export function usageText(usage: Usage): string {
  const count = new Intl.NumberFormat();
  const words: string[] = [];
  if (usage.inputTokens !== undefined) words.push(`${count.format(usage.inputTokens)} tokens in`);
  if (usage.outputTokens !== undefined) words.push(`${count.format(usage.outputTokens)} out`);
  if (usage.cacheReadTokens) words.push(`${count.format(usage.cacheReadTokens)} from cache`);
  if (usage.model) words.push(usage.model);
  return words.join(' · ');
}

/** The path that a `file:` URI names; any other URI is shown as it is. */
export function directoryPath(uri: Uri): string {
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
