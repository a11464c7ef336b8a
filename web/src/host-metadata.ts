// Reads what Innkeeper adds to the protocol in `_meta`. The values may be anything: what does not match is absent.

import type { ChangesetFile } from './ahp/changeset-types';
import type { InitializeResult, Message, ResponsePart, SessionState, SessionSummary, ToolCall, Uri } from './ahp/types';
import { isCount, oneLine } from './format';

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
  /** These count the items that the host left out, too. */
  done: number;
  total: number;
}

/** What is special about a file of a changeset. */
export interface EditDetails {
  /** Whether a command made changes. */
  byShell: boolean;
  /** Whether only the user or another program made changes. */
  byOthers: boolean;
  /** Whether another chat or program may have made a part of the change. */
  overlaps: boolean;
  /** Whether the file was also changed outside of the agent between its changes. */
  mixed: boolean;
  /** Why the change cannot be undone; empty if it can. */
  notUndoable: string;
}

/** A message that the agent has taken into the running turn. */
export interface TakenSteering {
  id: string;
  /** How many attachments it had. */
  attachments: number;
}

/** What the model calls of a turn or a session used. */
export interface ModelUse {
  /** All input, also from and into the cache. */
  input: number;
  output: number;
  cacheRead: number;
  /** The agent's estimate of the cost. */
  dollars: number | undefined;
  /** Copilot's credits in billionths. */
  nanoCredits: number | undefined;
}

/** The background work that a turn reports about. */
export interface ReportedWork {
  kind: 'command' | 'subagent' | 'work';
  label: string;
  /** What has become of it, such as `completed`; empty if it is unknown. */
  status: string;
}

/** The characters of a reason, rule or to-do item that are shown. */
const TEXT_CHARACTERS = 600;
/** The rules and to-do items that are shown. */
const MAX_ITEMS = 100;

export function permissionDetails(call: ToolCall): PermissionDetails {
  const found = record(call._meta?.['innkeeper.permission']);
  return {
    layer: layerName(oneLine(found['layer'])),
    reason: oneLine(found['reason'], TEXT_CHARACTERS),
    rules: list(found['rules'])
      .map((rule) => oneLine(rule, TEXT_CHARACTERS))
      .filter((rule) => rule !== ''),
    suggestedByAgent: found['suggestedBy'] === 'agent',
  };
}

export function editDetails(file: ChangesetFile): EditDetails {
  const found = record(file._meta?.['innkeeper.edit']);
  const sources = list(found['sources']);
  return {
    byShell: sources.includes('shell'),
    byOthers: sources.length > 0 && sources.every((source) => source === 'external'),
    overlaps: found['overlaps'] === true,
    mixed: found['mixed'] === true,
    notUndoable: oneLine(found['notUndoable'], TEXT_CHARACTERS),
  };
}

/** The host's layers in words. The reason already says that a mode or no rule decides. */
const LAYERS = new Map([
  ['default', ''],
  ['workspace-write', ''],
  ['mode', ''],
  ['protected-path', 'Protected file'],
  ['not-understood', 'Command not understood'],
  ['rule-session', 'Rule of this session'],
  ['rule-workspace', 'Rule of this workspace'],
  ['rule-always', 'Rule for all sessions'],
  ['rule-client', 'Rule of a client'],
  ['rule-administrator', 'Rule in config.toml'],
]);

function layerName(layer: string): string {
  return LAYERS.get(layer) ?? layer;
}

/** Whether the call asks for the review of a plan. A later action may have replaced its metadata. */
export function isPlan(call: ToolCall): boolean {
  return call._meta?.['innkeeper.plan'] === true || call.toolName === 'ExitPlanMode';
}

/** The to-do list of a chat; undefined if it has none. */
export function todoList(session: SessionState | undefined, chat: Uri | undefined): TodoList | undefined {
  const found = record(record(session?._meta?.['innkeeper.todo'])[chat ?? '']);
  const items = list(found['items']).map((item): TodoItem => {
    const { text, status } = record(item);
    return { text: oneLine(text, TEXT_CHARACTERS), status: itemStatus(status) };
  });
  if (items.length === 0) return undefined;
  const done = Math.max(count(found['done']), items.filter((item) => item.status === 'done').length);
  return { items, done, total: Math.max(count(found['total']), items.length, done) };
}

/** How much of a session's to-do lists is done, such as `2/5`. */
export function todoProgress(row: SessionSummary): string {
  const { done, total } = record(row._meta?.['innkeeper.todo']);
  return count(total) > 0 ? `${count(done)}/${count(total)} done` : '';
}

/** What was used, from the metadata of a turn's usage or of a session. */
export function modelUse(meta: Record<string, unknown> | undefined): ModelUse | undefined {
  const found = meta?.['innkeeper.usage'];
  if (typeof found !== 'object' || found === null) return undefined;
  const { inputTokens, outputTokens, cacheReadTokens, cacheWriteTokens, costUsd } = record(found);
  const { totalNanoAiu } = record(meta?.['copilotUsage']);
  const cacheRead = count(cacheReadTokens);
  return {
    input: count(inputTokens) + cacheRead + count(cacheWriteTokens),
    output: count(outputTokens),
    cacheRead,
    dollars: isCount(costUsd) ? costUsd : undefined,
    nanoCredits: isCount(totalNanoAiu) ? totalNanoAiu : undefined,
  };
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

/** A number of items; 0 for anything else. */
function count(value: unknown): number {
  return Number.isSafeInteger(value) && Number(value) > 0 ? Number(value) : 0;
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : {};
}

function list(value: unknown): unknown[] {
  return Array.isArray(value) ? value.slice(0, MAX_ITEMS) : [];
}

/** The ids of the parts of a turn that broke off: the agent has started them again. */
export function discardedParts(parts: readonly ResponsePart[]): ReadonlySet<unknown> {
  const named = parts.map((part) =>
    part?.kind === 'systemNotification' ? record(record(part)['_meta'])['innkeeper.discardedParts'] : undefined,
  );
  return new Set(named.flatMap((ids) => list(ids)).filter((id) => typeof id === 'string'));
}

/** The id with which the host names a part. */
export function partId(part: ResponsePart): unknown {
  return part?.kind === 'toolCall' ? part.toolCall?.toolCallId : record(part)['id'];
}

/** The requests that the host offers in addition to the protocol. */
export function hostMethods(host: InitializeResult | undefined): ReadonlySet<unknown> {
  return new Set(list(host?._meta?.['innkeeper.methods']));
}

/** What a part says about a steering message; undefined if the part is something else. */
export function steeringOf(part: ResponsePart): TakenSteering | undefined {
  if (part?.kind !== 'systemNotification') return undefined;
  const found = part._meta?.['innkeeper.steering'];
  if (typeof found !== 'object' || found === null) return undefined;
  const { id, attachments } = record(found);
  return { id: typeof id === 'string' ? id : '', attachments: count(attachments) };
}

/** The background work that a message is about; undefined for any other message. */
export function reportedWork(message: Message | undefined): ReportedWork | undefined {
  const found = message?._meta?.['innkeeper.work'];
  if (typeof found !== 'object' || found === null) return undefined;
  const { kind, label, status, works } = record(found);
  return {
    kind: kind === 'command' || kind === 'subagent' ? kind : 'work',
    // The message names the works if there are several.
    label: Array.isArray(works) ? `${works.length} tasks` : oneLine(label),
    status: oneLine(status),
  };
}

/** Whether a tool call is a command or a subagent, which can be stopped by itself. */
export function isStoppable(call: ToolCall): boolean {
  const kind = call._meta?.['toolKind'];
  if (kind === 'terminal' || kind === 'subagent') return true;
  return call.toolName === 'Bash' || call.toolName === 'Task' || call.toolName === 'Agent';
}
