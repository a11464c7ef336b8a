// A menu of the permission modes. It follows the host: a choice is shown after the host accepted it.

import { useSignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';

import type { ModeSetting } from '../permission-mode';
import { ShieldIcon } from './Icons';

interface ModePickerProps {
  setting: ModeSetting;
  /** Why the mode cannot be changed now. */
  blocked: string | undefined;
  onChange(mode: string): void;
}

export function ModePicker({ setting, blocked, onChange }: ModePickerProps) {
  const open = useSignal(false);
  const menu = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const { current, modes, note } = setting;
  const close = () => {
    open.value = false;
    button.current?.focus();
  };
  useLayoutEffect(() => {
    if (!open.value) return;
    const checked = menu.current?.querySelector<HTMLElement>('[aria-checked=true]');
    (checked ?? menu.current?.querySelector<HTMLElement>('button'))?.focus();
  }, [open.value]);

  return (
    <div
      class="mode"
      onFocusOut={(event) => {
        if (!(event.relatedTarget instanceof Node && event.currentTarget.contains(event.relatedTarget))) open.value = false;
      }}
    >
      <button
        type="button"
        ref={button}
        class={current?.id === 'bypassPermissions' ? 'mode-button is-risky' : 'mode-button'}
        aria-haspopup="menu"
        aria-expanded={open.value}
        aria-label={`Permission mode: ${current?.label ?? 'unknown'}`}
        title={blocked ?? current?.description}
        disabled={blocked !== undefined}
        onClick={() => (open.value = !open.value)}
      >
        <ShieldIcon />
        <span class="mode-name">{current?.label ?? 'Mode'}</span>
      </button>
      {open.value && (
        <div class="mode-menu">
          <div
            ref={menu}
            role="menu"
            aria-label="Permission mode"
            onKeyDown={(event) => {
              if (event.key === 'Escape') close();
              else if (moveFocus(menu.current, event.key)) event.preventDefault();
            }}
          >
            {modes.map((mode) => (
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
                <span class="mode-label">{mode.label}</span>
                <span class="mode-description">{mode.description}</span>
              </button>
            ))}
          </div>
          {note && <p class="mode-note">{note}</p>}
        </div>
      )}
    </div>
  );
}

/** Moves the focus in a menu; returns false if the key does not do that. */
function moveFocus(menu: HTMLElement | null, key: string): boolean {
  const items = [...(menu?.querySelectorAll('button') ?? [])];
  const index = items.indexOf(document.activeElement as HTMLButtonElement);
  const targets: Record<string, number> = { ArrowDown: index + 1, ArrowUp: index - 1, Home: 0, End: items.length - 1 };
  const target = targets[key];
  if (target === undefined) return false;
  items.at(target % items.length)?.focus();
  return true;
}
