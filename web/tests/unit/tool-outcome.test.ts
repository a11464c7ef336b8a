import { expect, it } from 'vitest';

import type { ToolCall } from '../../src/ahp/types';
import { outcomeOf, outcomeReason, outcomeWord } from '../../src/tool-outcome';

const base = { toolCallId: 'k', toolName: 'Bash', displayName: 'Bash' };
const suggestion = { text: 'Use ls', origin: { kind: 'user' } };

it.each<[string, Partial<ToolCall>, string, string]>([
  ['a success', { status: 'completed', success: true }, 'done', ''],
  ['a failure', { status: 'completed', success: false, error: { message: 'exit code 1' } }, 'failed', 'exit code 1'],
  [
    'a denial by the host',
    { status: 'completed', success: false, error: { code: 'denied', message: 'Denied by the rule Bash(rm:*)' } },
    'denied',
    'Denied by the rule Bash(rm:*)',
  ],
  [
    'a message that only mentions a denial',
    { status: 'completed', success: false, error: 'Permission denied' },
    'failed',
    'Permission denied',
  ],
  [
    'a denial by a user',
    { status: 'cancelled', reason: 'denied', reasonMessage: { markdown: 'Denied in the page.' }, userSuggestion: suggestion },
    'denied',
    'Denied in the page. “Use ls”',
  ],
  [
    'a denial whose author the host does not name',
    { status: 'cancelled', reason: 'denied', selectedOption: { id: 'deny', label: 'Deny', kind: 'deny' } },
    'denied',
    'Denied by a user.',
  ],
  [
    'a plan to work on',
    { status: 'cancelled', reason: 'denied', _meta: { 'innkeeper.plan': true }, userSuggestion: suggestion },
    'not approved',
    '“Use ls”',
  ],
  ['an approved plan', { status: 'completed', success: true, _meta: { 'innkeeper.plan': true } }, 'approved', ''],
  ['a stopped turn', { status: 'cancelled', reason: 'skipped' }, 'skipped', ''],
  ['an open request', { status: 'pending-confirmation' }, 'waits for approval', ''],
  ['a missing sign-in', { status: 'auth-required' }, 'needs a sign-in', ''],
  ['streamed input', { status: 'streaming' }, 'running', ''],
])('describes %s', (_, fields, word, reason) => {
  const call = { ...base, ...fields } as ToolCall;
  expect([outcomeWord(call), outcomeReason(call)]).toEqual([word, reason]);
});

it('takes errors and reasons of any form', () => {
  for (const odd of [7, null, [], {}, { code: {} }, 'text']) {
    const call = {
      ...base,
      status: 'completed',
      success: false,
      error: odd,
      reasonMessage: odd,
      userSuggestion: odd,
    } as unknown as ToolCall;
    expect(outcomeOf(call)).toBe('failed');
    expect(typeof outcomeReason(call)).toBe('string');
  }
});
