// A menu of the permission modes. It follows the host: a choice is shown after the host accepted it.

import type { ModeSetting } from '../permission-mode';
import { ShieldIcon } from './Icons';
import { Picker } from './Picker';

interface ModePickerProps {
  setting: ModeSetting;
  /** Why the mode cannot be changed now. */
  blocked: string | undefined;
  onChange(mode: string): void;
}

export function ModePicker({ setting, blocked, onChange }: ModePickerProps) {
  const { current, modes, note } = setting;
  return (
    <Picker
      kind="mode"
      label="Permission mode"
      icon={<ShieldIcon />}
      shown={current?.label ?? 'Mode'}
      value={current?.label ?? 'unknown'}
      title={blocked ?? current?.description}
      isRisky={current?.id === 'bypassPermissions'}
      disabled={blocked !== undefined}
      note={note}
    >
      {(close) =>
        modes.map((mode) => (
          <button
            key={mode.id}
            type="button"
            role="menuitemradio"
            aria-checked={mode.id === current?.id}
            tabIndex={-1}
            onClick={() => {
              close();
              if (mode.id !== current?.id) onChange(mode.id);
            }}
          >
            <span class="picker-label">{mode.label}</span>
            <span class="picker-description">{mode.description}</span>
          </button>
        ))
      }
    </Picker>
  );
}
