// The cost line of a turn and of a session.

import { expect, it } from 'vitest';

import type { SessionState, Usage } from '../../src/ahp/types';
import { sessionUsageText, usageText } from '../../src/usage-text';

const totals = (more: Record<string, unknown> = {}) => ({
  requests: 3,
  inputTokens: 1000,
  outputTokens: 56,
  cacheReadTokens: 60_000,
  cacheWriteTokens: 234,
  ...more,
});
const session = (meta: Record<string, unknown>) => ({ _meta: meta }) as unknown as SessionState;

it('names only the usage that is known', () => {
  expect(usageText({ inputTokens: 12, outputTokens: 3, cacheReadTokens: 0, model: 'm' })).toBe('12 tokens in · 3 out · m');
  expect(usageText({})).toBe('');
  expect(sessionUsageText(undefined)).toBe('');
  expect(sessionUsageText(session({}))).toBe('');
});

it('shows the totals of all calls of a turn with their cost', () => {
  const usage = { inputTokens: 12, outputTokens: 56, model: 'm', _meta: { 'innkeeper.usage': totals({ costUsd: 1.234 }) } };
  expect(usageText(usage)).toBe('61,234 tokens in · 56 out · 60,000 from cache · about $1.23 · m');
});

it('shows credits instead of an estimate in dollars', () => {
  const meta = (nano: unknown) => ({ 'innkeeper.usage': totals({ costUsd: 1 }), copilotUsage: { totalNanoAiu: nano } });
  expect(sessionUsageText(session(meta(1_500_000_000)))).toBe('61.3K tokens · 1.5 credits');
  expect(sessionUsageText(session(meta(1_000_000_000)))).toBe('61.3K tokens · 1 credit');
  expect(sessionUsageText(session(meta('5')))).toBe('61.3K tokens · about $1.00');
});

it('keeps two digits of a small cost and leaves out what costs nothing', () => {
  const shown = (costUsd: unknown) => sessionUsageText(session({ 'innkeeper.usage': totals({ costUsd }) })).replace('61.3K tokens', '');
  expect([0.0412, 0.002, 0.00001, 0, undefined, '1', -1].map(shown)).toEqual([
    ' · about $0.041',
    ' · about $0.002',
    ' · below $0.0001',
    '',
    '',
    '',
    '',
  ]);
});

it('leaves out values that cannot be meant', () => {
  const usage = { inputTokens: 1e300, outputTokens: null, cacheReadTokens: -1, model: {} };
  expect(usageText(usage as unknown as Usage)).toBe('');
  for (const damaged of [null, 'x', 5]) {
    expect(usageText({ _meta: { 'innkeeper.usage': damaged, copilotUsage: damaged } })).toBe('');
    expect(sessionUsageText(session({ 'innkeeper.usage': damaged }))).toBe('');
  }
  const counts = { inputTokens: 'x', outputTokens: {}, cacheReadTokens: null, cacheWriteTokens: -5, costUsd: Number.NaN };
  expect(sessionUsageText(session({ 'innkeeper.usage': counts }))).toBe('');
});
