// The buttons that answer a permission request. A press counts only after the buttons were at their place for a while,
// so that a press that was meant for something else allows nothing.

import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useId, useRef } from 'preact/hooks';

import type { Choice } from '../../choices';
import { useStillness } from '../use-stillness';

interface ChoiceButtonsProps {
  /** What the buttons decide about. */
  subject: unknown;
  choices: readonly Choice[];
  /** The choice that looks like the expected one. */
  primary: Choice | undefined;
  /** Why nothing can be chosen now. */
  blocked: string | undefined;
  /** Why this choice cannot be chosen now, although others can. */
  unavailable(choice: Choice): string | undefined;
  onChoose(choice: Choice): void;
  /** Further buttons in the same place. */
  children?: ComponentChildren;
}

export function ChoiceButtons({ subject, choices, primary, blocked, unavailable, onChoose, children }: ChoiceButtonsProps) {
  const place = useRef<HTMLDivElement>(null);
  const isStill = useStillness(place, subject);
  const ignored = useSignal(false);
  const hintId = useId();
  const reasons = choices.map(unavailable);
  const hint = blocked ?? (ignored.value ? 'The request has just appeared, moved or changed. Press again.' : reasons.find(Boolean));
  const press = (choice: Choice, index: number) => {
    if (blocked !== undefined || reasons[index] !== undefined) return;
    ignored.value = !isStill();
    if (!ignored.value) onChoose(choice);
  };
  return (
    <div class="choices" ref={place}>
      {choices.map((choice, index) => (
        <button
          key={index}
          type="button"
          class={choice === primary ? 'primary' : choice.approved ? 'plain' : 'plain is-denial'}
          // A disabled button would lose the focus.
          aria-disabled={blocked !== undefined || reasons[index] !== undefined}
          aria-describedby={hintId}
          onClick={() => press(choice, index)}
        >
          {choice.label}
        </button>
      ))}
      {children}
      <p id={hintId} class="hint" role="status">
        {hint}
      </p>
    </div>
  );
}
