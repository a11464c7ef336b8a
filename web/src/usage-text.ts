// What a turn or a session used, as one short line. The values may be anything: what is not a count is left out.

import type { SessionState, Usage } from './ahp/types';
import { count, isCount, oneLine } from './format';
import { type ModelUse, modelUse } from './host-metadata';

/** Copilot's credits are reported in billionths. */
const NANO = 1_000_000_000;

const compact = new Intl.NumberFormat(undefined, { notation: 'compact', maximumFractionDigits: 1 });
const credits = new Intl.NumberFormat(undefined, { maximumFractionDigits: 2 });

/** The usage of a turn: all of its model calls, or the last one if the host sends no totals. */
export function usageText(usage: Usage): string {
  const { inputTokens, outputTokens, cacheReadTokens, model } = usage;
  const used = modelUse(usage._meta);
  const [input, output, cached] = used ? [used.input, used.output, used.cacheRead] : [inputTokens, outputTokens, cacheReadTokens];
  const words: string[] = [];
  if (isCount(input)) words.push(`${count.format(input)} tokens in`);
  if (isCount(output)) words.push(`${count.format(output)} out`);
  if (isCount(cached) && cached > 0) words.push(`${count.format(cached)} from cache`);
  words.push(used ? costText(used) : '', model ? oneLine(model) : '');
  return words.filter(Boolean).join(' · ');
}

/** What a session used so far; empty if it is unknown. */
export function sessionUsageText(session: SessionState | undefined): string {
  const used = modelUse(session?._meta);
  if (!used || used.input + used.output === 0) return '';
  return [`${compact.format(used.input + used.output)} tokens`, costText(used)].filter(Boolean).join(' · ');
}

/** The credits that were charged, or else the agent's estimate in dollars. */
function costText({ dollars, nanoCredits }: ModelUse): string {
  if (nanoCredits !== undefined) {
    const charged = credits.format(nanoCredits / NANO);
    return `${charged} ${charged === '1' ? 'credit' : 'credits'}`;
  }
  if (dollars === undefined || dollars === 0) return '';
  if (dollars < 0.0001) return 'below $0.0001';
  return `about $${dollars < 0.1 ? Number(dollars.toPrecision(2)) : dollars.toFixed(2)}`;
}
