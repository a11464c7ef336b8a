// The options of a question: radio buttons, or checkboxes if several can be chosen.

import { useId } from 'preact/hooks';

import type { InputOption } from '../../ahp/types';
import { oneLine } from '../../format';
import { MoreList } from '../MoreList';

/** The options that are shown at first, and with every further click. */
const SHOWN_OPTIONS = 50;
/** The characters of a label or description that are shown. */
const OPTION_CHARACTERS = 1_000;

interface OptionListProps {
  options: readonly InputOption[];
  chosen: readonly string[];
  multiple?: boolean;
  onChoose: (chosen: readonly string[]) => void;
}

export function OptionList({ options, chosen, multiple = false, onChoose }: OptionListProps) {
  const name = useId();
  const toggled = (id: string): readonly string[] => {
    if (!multiple) return [id];
    return chosen.includes(id) ? chosen.filter((each) => each !== id) : [...chosen, id];
  };
  return (
    <div class="options">
      <MoreList items={options} step={SHOWN_OPTIONS} what="options">
        {(option, index) => (
          <label key={index} class="option">
            <input
              type={multiple ? 'checkbox' : 'radio'}
              name={name}
              checked={chosen.includes(option.id)}
              onChange={() => onChoose(toggled(option.id))}
            />
            <span class="option-text">
              <span class="option-label">
                {oneLine(option.label, OPTION_CHARACTERS) || oneLine(option.id)}
                {option.recommended === true && <span class="recommended">Recommended</span>}
              </span>
              {option.description && <span class="option-detail">{oneLine(option.description, OPTION_CHARACTERS)}</span>}
            </span>
          </label>
        )}
      </MoreList>
    </div>
  );
}
