// A compact button that opens a menu above it. The children of the menu are buttons, which the arrow keys move between.

import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';

interface PickerProps {
  /** A class of its own, which the button and the menu extend. */
  kind: string;
  /** What is chosen, such as "Permission mode". */
  label: string;
  icon: ComponentChildren;
  /** The current choice, as it is shown. */
  shown: string;
  /** A short addition to it, which is never cut off. */
  addition?: string | undefined;
  /** The current choice in full. */
  value: string;
  title?: string | undefined;
  isRisky?: boolean;
  disabled?: boolean;
  /** Text below the menu. */
  note?: string | undefined;
  /** The items of the menu; `close` closes it and returns the focus. */
  children(close: () => void): ComponentChildren;
}

export function Picker({ kind, label, icon, shown, addition, value, title, isRisky, disabled, note, children }: PickerProps) {
  const open = useSignal(false);
  const menu = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
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
      class={`picker ${kind}`}
      onFocusOut={(event) => {
        if (!(event.relatedTarget instanceof Node && event.currentTarget.contains(event.relatedTarget))) open.value = false;
      }}
    >
      <button
        type="button"
        ref={button}
        class={`picker-button ${kind}-button${isRisky ? ' is-risky' : ''}`}
        aria-haspopup="menu"
        aria-expanded={open.value}
        aria-label={`${label}: ${value}`}
        title={title}
        disabled={disabled}
        onClick={() => (open.value = !open.value)}
      >
        {icon}
        <span class="picker-name">{shown}</span>
        {addition && <span class="picker-addition">{addition}</span>}
      </button>
      {open.value && (
        <div class="picker-menu">
          <div
            ref={menu}
            class="picker-items"
            role="menu"
            aria-label={label}
            onKeyDown={(event) => {
              if (event.key === 'Escape') close();
              else if (moveFocus(menu.current, event.key)) event.preventDefault();
            }}
          >
            {children(close)}
          </div>
          {note && <p class="picker-note">{note}</p>}
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
