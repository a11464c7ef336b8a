import { expect, it } from 'vitest';

import type { ConfirmationOption, ToolCall } from '../../src/ahp/types';
import { choicesOf } from '../../src/choices';

function call(options?: unknown): ToolCall {
  const base = { status: 'pending-confirmation', toolCallId: 'k', toolName: 'Bash', displayName: 'Bash' };
  return options === undefined ? base : { ...base, options: options as ConfirmationOption[] };
}

it('puts the options that allow a call first and keeps their order', () => {
  const options = [
    { id: 'deny', label: 'Deny', kind: 'deny' },
    { id: 'allow-once', label: 'Allow once', kind: 'approve' },
    { id: 'allow-session', label: '', kind: 'approve' },
  ];
  expect(choicesOf(call(options))).toEqual([
    { id: 'allow-once', label: 'Allow once', approved: true },
    { id: 'allow-session', label: 'allow-session', approved: true },
    { id: 'deny', label: 'Deny', approved: false },
  ]);
});

it.each([[undefined], [[]], ['odd']])('offers to allow once and to deny when the options are %o', (options) => {
  expect(choicesOf(call(options)).map((choice) => [choice.label, choice.approved])).toEqual([
    ['Allow once', true],
    ['Deny', false],
  ]);
});

it('can always deny, and does not offer options of unknown kinds', () => {
  const options = [{ id: 'x', label: 'Allow', kind: 'maybe' }, null, { id: 7, kind: 'approve' }];
  expect(choicesOf(call(options))).toEqual([{ label: 'Deny', approved: false }]);
});
