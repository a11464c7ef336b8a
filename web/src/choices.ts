// The ways to answer a permission request. The host names them; every request can be denied.

import type { ConfirmationOption, ToolCall } from './ahp/types';
import { oneLine } from './format';

export interface Choice {
  /** Absent if the host did not offer this option. */
  id?: string;
  label: string;
  approved: boolean;
}

/** Options that are shown at most. */
const MAX_OPTIONS = 12;

/** The options of a call, those that allow it first. */
export function choicesOf(call: ToolCall): Choice[] {
  const options: unknown = call.options;
  if (!Array.isArray(options) || options.length === 0) return [{ label: 'Allow once', approved: true }, DENY];
  const known = options.slice(0, MAX_OPTIONS).filter(isKnown).map(choice);
  const denials = known.filter((each) => !each.approved);
  return [...known.filter((each) => each.approved), ...(denials.length > 0 ? denials : [DENY])];
}

/** The options of the host that add the rules of the request. */
const ADDING_RULES = ['allow-session', 'allow-workspace'];

export function addsRules(choice: Choice): boolean {
  return choice.id !== undefined && ADDING_RULES.includes(choice.id);
}

const DENY: Choice = { label: 'Deny', approved: false };

/** An option of an unknown kind is not offered: its effect is unknown. */
function isKnown(option: ConfirmationOption | null): option is ConfirmationOption {
  return typeof option?.id === 'string' && (option.kind === 'approve' || option.kind === 'deny');
}

function choice({ id, label, kind }: ConfirmationOption): Choice {
  return { id, label: oneLine(label) || oneLine(id), approved: kind === 'approve' };
}
