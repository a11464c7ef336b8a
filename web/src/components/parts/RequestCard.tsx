// The frame of a request that waits for the user: a titled group that can have the focus, and keeps it from getting
// lost when the request is answered.

import type { ComponentChildren } from 'preact';
import { useId, useLayoutEffect, useRef } from 'preact/hooks';

import { ShieldIcon } from '../Icons';

interface RequestCardProps {
  id: string;
  title: string;
  /** The tool that asks. */
  tool: string;
  children: ComponentChildren;
}

export function RequestCard({ id, title, tool, children }: RequestCardProps) {
  const titleId = useId();
  const card = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    const element = card.current;
    return () => {
      const focused = document.activeElement;
      // Only a keyboard user needs the focus: on a phone it would open the keyboard.
      if (element?.contains(focused) && focused?.matches(':focus-visible')) focusNext(element);
    };
  }, []);
  return (
    <section class="request" ref={card} role="group" aria-labelledby={titleId} tabIndex={-1} data-open-request={id}>
      <div class="request-head">
        <ShieldIcon />
        <h3 id={titleId}>{title}</h3>
        <span class="request-tool">{tool}</span>
      </div>
      {children}
    </section>
  );
}

/** Moves the focus to the next request, but not to one of its buttons, or else to the message box. */
function focusNext(answered: HTMLElement): void {
  const others = [...document.querySelectorAll<HTMLElement>('section[data-open-request]')].filter((each) => each !== answered);
  (others[0] ?? document.getElementById('composer'))?.focus({ preventScroll: true });
}
