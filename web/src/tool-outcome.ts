// What a tool call came to, in one word and in one sentence. Denied, failed and skipped calls are told apart by their
// state and by the code of their error, never by the words of their messages.

import type { ToolCall } from './ahp/types';
import { oneLine, plainText } from './format';
import { isPlan } from './host-metadata';

export type Outcome = 'running' | 'waiting' | 'done' | 'failed' | 'denied' | 'skipped';

/** The characters of a reason that are shown in a row. */
const REASON_CHARACTERS = 400;

export function outcomeOf(call: ToolCall): Outcome {
  switch (call.status) {
    case 'completed':
      if (call.success) return 'done';
      return errorCode(call.error) === 'denied' ? 'denied' : 'failed';
    case 'cancelled':
      return call.reason === 'denied' || call.reason === 'result-denied' ? 'denied' : 'skipped';
    case 'pending-confirmation':
    case 'pending-result-confirmation':
    case 'auth-required':
      return 'waiting';
    default:
      return 'running';
  }
}

export function outcomeWord(call: ToolCall): string {
  const outcome = outcomeOf(call);
  if (isPlan(call) && outcome === 'done') return 'approved';
  if (isPlan(call) && outcome === 'denied') return 'not approved';
  if (outcome !== 'waiting') return outcome;
  return call.status === 'auth-required' ? 'needs a sign-in' : 'waits for approval';
}

/** Who denied the call and why, or why it failed; empty if nothing is known. */
export function outcomeReason(call: ToolCall): string {
  const outcome = outcomeOf(call);
  if (outcome !== 'denied' && outcome !== 'failed' && outcome !== 'skipped') return '';
  const suggestion = call.userSuggestion?.text;
  const said = typeof suggestion === 'string' && suggestion !== '' ? `“${oneLine(suggestion, REASON_CHARACTERS)}”` : '';
  const why = plainText(call.reasonMessage) || (outcome === 'skipped' ? '' : errorMessage(call.error));
  // An option can only be selected by a user.
  const who = outcome === 'denied' && call.selectedOption && !isPlan(call) ? 'Denied by a user.' : '';
  return [oneLine(why, REASON_CHARACTERS) || who, said].filter(Boolean).join(' ');
}

/** The message of an error, which can have any form. */
export function errorMessage(error: unknown): string {
  if (typeof error === 'string') return error;
  if (typeof error !== 'object' || error === null) return '';
  const { message } = error as { message?: unknown };
  return typeof message === 'string' ? message : JSON.stringify(error);
}

function errorCode(error: unknown): unknown {
  return typeof error === 'object' && error !== null ? (error as { code?: unknown }).code : undefined;
}
