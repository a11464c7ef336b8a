// The models of the fake host.

const LEVELS = { low: 'Low', medium: 'Medium', high: 'High' };

export const MODELS = [
  model('default', 'Auto (Claude Sonnet 4.5)', { multiplier: 1, levels: LEVELS }),
  model('claude-haiku-4.5', 'Claude Haiku 4.5', { multiplier: 0.33 }),
  model('claude-opus-4.6', 'Claude Opus 4.6', { multiplier: 3, context: 1_000_000, levels: { ...LEVELS, max: 'Maximum' } }),
  model('claude-sonnet-4.5', 'Claude Sonnet 4.5', { multiplier: 1, levels: LEVELS }),
];

function model(id, name, { multiplier, context = 200_000, levels }) {
  const thinkingLevel = levels && {
    type: 'string',
    title: 'Thinking effort',
    enum: Object.keys(levels),
    enumLabels: Object.values(levels),
    default: 'medium',
  };
  return {
    id,
    provider: 'claude',
    name,
    maxContextWindow: context,
    supportsVision: true,
    ...(thinkingLevel ? { configSchema: { type: 'object', properties: { thinkingLevel } } } : {}),
    _meta: { multiplierNumeric: multiplier, source: 'GitHub Copilot', vendor: 'Anthropic' },
  };
}

export function agentWith(models) {
  return { provider: 'claude', displayName: 'Claude', description: 'A coding agent', models };
}
