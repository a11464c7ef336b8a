// The states of one tool call: streaming → (pending-confirmation) → running → completed or cancelled.
// An unknown transition leaves the call unchanged.

import type { Action, ConfirmationOption, Markdownish, ToolCall, ToolInput, ToolResultContent } from './types';

/** Returns the call after the action; undefined if there is no such call and the action does not start one. */
export function reduceToolCall(call: ToolCall | undefined, action: Action): ToolCall | undefined {
  if (action.type === 'chat/toolCallStart') return call ?? started(action);
  if (!call) return undefined;
  switch (action.type) {
    case 'chat/toolCallDelta':
      return delta(call, action);
    case 'chat/toolCallReady':
      return ready(call, action);
    case 'chat/toolCallConfirmed':
      return confirmed(call, action);
    case 'chat/toolCallContentChanged':
      return call.status === 'running' ? { ...call, ...meta(action), content: action['content'] as ToolResultContent[] } : call;
    case 'chat/toolCallComplete':
      return completed(call, action);
    case 'chat/toolCallResultConfirmed':
      return resultConfirmed(call, action);
    case 'chat/toolCallAuthRequired':
      return call.status === 'running' && call.contributor?.kind === 'mcp'
        ? { ...call, ...meta(action), status: 'auth-required', auth: action['auth'] }
        : call;
    case 'chat/toolCallAuthResolved':
      return call.status === 'auth-required' ? { ...without(call, 'auth'), ...meta(action), status: 'running' } : call;
    default:
      return call;
  }
}

/** The state of a call that was still open when its turn ended. */
export function skipped(call: ToolCall): ToolCall {
  return {
    ...withoutConfirmation(without(withoutResult(call), 'partialInput', 'selectedOption', 'auth')),
    invocationMessage: call.invocationMessage ?? '',
    status: 'cancelled',
    reason: 'skipped',
  };
}

function started(action: Action): ToolCall {
  return {
    status: 'streaming',
    toolCallId: String(action['toolCallId']),
    toolName: String(action['toolName']),
    displayName: String(action['displayName'] ?? action['toolName']),
    ...present<ToolCall>(action, ['intention', 'contributor', '_meta']),
  };
}

function delta(call: ToolCall, action: Action): ToolCall {
  if (call.status !== 'streaming') return call;
  const partialInput = (call.partialInput ?? '') + String(action['content'] ?? '');
  return {
    ...call,
    ...present<ToolCall>(action, ['invocationMessage', '_meta']),
    ...(action['content'] === undefined ? {} : { partialInput }),
  };
}

function ready(call: ToolCall, action: Action): ToolCall {
  if (!['streaming', 'running', 'pending-confirmation'].includes(call.status)) return call;
  const base: ToolCall = {
    ...without(call, 'partialInput', 'content'),
    ...present<ToolCall>(action, ['intention', 'toolInput', '_meta']),
    invocationMessage: action['invocationMessage'] as Markdownish,
  };
  if (action['confirmed'] !== undefined) {
    return { ...withoutConfirmation(base), status: 'running', confirmed: String(action['confirmed']) };
  }
  return {
    ...without(base, 'confirmed', 'selectedOption'),
    ...present<ToolCall>(action, ['confirmationTitle', 'riskAssessment', 'edits', 'editable', 'options']),
    status: 'pending-confirmation',
  };
}

function confirmed(call: ToolCall, action: Action): ToolCall {
  if (call.status !== 'pending-confirmation') return call;
  const selected = call.options?.find((option: ConfirmationOption) => option.id === action['selectedOptionId']);
  const base: ToolCall = {
    ...withoutConfirmation(call),
    ...meta(action),
    ...(selected ? { selectedOption: selected } : {}),
  };
  if (action['approved'] !== true) {
    return {
      ...base,
      ...present<ToolCall>(action, ['reasonMessage', 'userSuggestion']),
      status: 'cancelled',
      reason: String(action['reason'] ?? 'denied'),
    };
  }
  const edited = typeof call.toolInput === 'string' ? (action['editedToolInput'] as ToolInput | undefined) : undefined;
  return {
    ...base,
    ...(edited === undefined ? {} : { toolInput: edited }),
    status: 'running',
    confirmed: String(action['confirmed'] ?? 'not-needed'),
  };
}

function completed(call: ToolCall, action: Action): ToolCall {
  const result = (action['result'] ?? {}) as Partial<ToolCall>;
  const waitedForSignIn = call.status === 'auth-required';
  // A call that waits for a sign-in never ran, so it can fail but not succeed.
  if (waitedForSignIn && result.success) return call;
  if (!waitedForSignIn && call.status !== 'running' && call.status !== 'pending-confirmation') return call;
  const review = action['requiresResultConfirmation'] === true && !waitedForSignIn;
  const kept = waitedForSignIn ? without(call, 'auth') : without(call, 'content');
  return {
    ...withoutConfirmation(kept),
    ...meta(action),
    ...present<ToolCall>(result, ['pastTenseMessage', 'content', 'structuredContent', 'error']),
    success: result.success === true,
    confirmed: call.confirmed ?? 'not-needed',
    status: review ? 'pending-result-confirmation' : 'completed',
  };
}

function resultConfirmed(call: ToolCall, action: Action): ToolCall {
  if (call.status !== 'pending-result-confirmation') return call;
  if (action['approved'] === true) return { ...call, ...meta(action), status: 'completed' };
  return { ...withoutResult(call), ...meta(action), status: 'cancelled', reason: 'result-denied' };
}

function withoutResult(call: ToolCall): ToolCall {
  return without(call, 'success', 'pastTenseMessage', 'content', 'structuredContent', 'error', 'confirmed');
}

function withoutConfirmation(call: ToolCall): ToolCall {
  return without(call, 'confirmationTitle', 'riskAssessment', 'edits', 'editable', 'options');
}

function meta(action: Action): Partial<ToolCall> {
  return present<ToolCall>(action, ['_meta']);
}

/** The named fields that are present in the source. */
function present<T extends object>(source: object, keys: (keyof T & string)[]): Partial<T> {
  const fields = source as Record<string, unknown>;
  return Object.fromEntries(keys.filter((key) => fields[key] != null).map((key) => [key, fields[key]])) as Partial<T>;
}

function without<K extends keyof ToolCall>(call: ToolCall, ...keys: K[]): ToolCall {
  const next = { ...call };
  for (const key of keys) delete next[key];
  return next;
}
