// The permission modes that the host offers for a session. The values may be anything: what does not match is absent.

import type { SessionConfig } from './ahp/types';
import { oneLine } from './format';

export const MODE_KEY = 'permissionMode';

export interface Mode {
  id: string;
  label: string;
  description: string;
}

export interface ModeSetting {
  current: Mode | undefined;
  modes: readonly Mode[];
  /** What the host says about the setting, such as why a mode is not offered. */
  note: string;
  /** Whether it can be changed in a running session. */
  changeable: boolean;
}

const MAX_MODES = 20;
const DESCRIPTION_CHARACTERS = 300;

/** The modes of a configuration; undefined if it has none. */
export function modeSetting(config: SessionConfig | undefined): ModeSetting | undefined {
  const property = config?.schema?.properties?.[MODE_KEY];
  if (!Array.isArray(property?.enum)) return undefined;
  const { enumLabels, enumDescriptions } = property;
  const modes = property.enum.slice(0, MAX_MODES).flatMap((id, index): Mode[] => {
    if (typeof id !== 'string') return [];
    return [
      { id, label: oneLine(enumLabels?.[index]) || oneLine(id), description: oneLine(enumDescriptions?.[index], DESCRIPTION_CHARACTERS) },
    ];
  });
  const value = config?.values?.[MODE_KEY] ?? property.default;
  const unlisted = typeof value === 'string' ? { id: value, label: oneLine(value), description: '' } : undefined;
  return {
    current: modes.find((mode) => mode.id === value) ?? unlisted,
    modes,
    note: oneLine(property.description, DESCRIPTION_CHARACTERS),
    changeable: property.sessionMutable === true && property.readOnly !== true,
  };
}
