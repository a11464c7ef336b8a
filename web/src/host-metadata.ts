// Reads what Innkeeper adds to the protocol in `_meta`. The values may be anything: what does not match is absent.

import type { SessionState, SessionSummary, ToolCall, Uri } from './ahp/types';
import { oneLine } from './format';

/** Why a tool call waits for permission. */
export interface PermissionDetails {
  layer: string;
  reason: string;
  /** The rules that an option that is remembered would add. */
  rules: readonly string[];
  suggestedByAgent: boolean;
}

export interface TodoItem {
  text: string;
  status: 'open' | 'current' | 'done';
}

export interface TodoList {
  items: readonly TodoItem[];
  /** Items that the host left out. */
  omitted: number;
}

/** The characters of a reason, rule or to-do item that are shown. */
const TEXT_CHARACTERS = 600;
/** The rules and to-do items that are shown. */
const MAX_ITEMS = 100;

export function permissionDetails(call: ToolCall): PermissionDetails {
  const found = record(call._meta?.['innkeeper.permission']);
  return {
    layer: oneLine(found['layer']),
    reason: oneLine(found['reason'], TEXT_CHARACTERS),
    rules: list(found['rules'])
      .map((rule) => oneLine(rule, TEXT_CHARACTERS))
      .filter((rule) => rule !== ''),
    suggestedByAgent: found['suggestedBy'] === 'agent',
  };
}

/** Whether the call asks for the review of a plan. */
export function isPlan(call: ToolCall): boolean {
  return call._meta?.['innkeeper.plan'] === true;
}

/** The to-do list of a chat; undefined if it has none. */
export function todoList(session: SessionState | undefined, chat: Uri | undefined): TodoList | undefined {
  const found = record(record(session?._meta?.['innkeeper.todo'])[chat ?? '']);
  const items = list(found['items']).map((item): TodoItem => {
    const { text, status } = record(item);
    return { text: oneLine(text, TEXT_CHARACTERS), status: itemStatus(status) };
  });
  const omitted = Number(found['omitted']);
  return items.length === 0 ? undefined : { items, omitted: omitted > 0 && Number.isSafeInteger(omitted) ? omitted : 0 };
}

/** How much of a session's to-do lists is done, such as `2/5`. */
export function todoProgress(row: SessionSummary): string {
  const { done, total } = record(row._meta?.['innkeeper.todo']);
  const known = Number.isSafeInteger(done) && Number.isSafeInteger(total) && Number(total) > 0;
  return known ? `${done}/${total} done` : '';
}

/** Since when a session waits for the user. */
export function waitingSince(row: SessionSummary): string | undefined {
  const since = row._meta?.['innkeeper.waitingSince'];
  return typeof since === 'string' ? since : undefined;
}

function itemStatus(status: unknown): TodoItem['status'] {
  if (status === 'completed') return 'done';
  return status === 'in_progress' ? 'current' : 'open';
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value.slice(0, MAX_ITEMS) : [];
}
