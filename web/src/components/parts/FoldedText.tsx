// Text in a box, of which only the beginning is shown if it is long. The button says how much is hidden.

import { useSignal } from '@preact/signals';

import { LongText } from '../LongText';

/** Text that is slightly longer is not folded. */
const FOLDED_LINES = 12;
const UNFOLDED_LINES = 16;
const FOLDED_CHARACTERS = 1_500;
const UNFOLDED_CHARACTERS = 2_000;

interface FoldedTextProps {
  text: string;
  /** A class for the box. */
  look?: string | undefined;
}

export function FoldedText({ text, look = '' }: FoldedTextProps) {
  const open = useSignal(false);
  const start = open.value ? text : beginning(text);
  const hidden = text.length - start.length;
  return (
    <div class="folded">
      <pre class={look} tabIndex={0}>
        <LongText text={start} />
      </pre>
      {hidden > 0 && (
        <button type="button" class="more" onClick={() => (open.value = true)}>
          Show all ({hiddenWords(text.slice(start.length))})
        </button>
      )}
    </div>
  );
}

function beginning(text: string): string {
  const lines = text.slice(0, UNFOLDED_CHARACTERS + 1).split('\n');
  if (lines.length <= UNFOLDED_LINES && text.length <= UNFOLDED_CHARACTERS) return text;
  const start = lines.slice(0, FOLDED_LINES).join('\n').slice(0, FOLDED_CHARACTERS);
  return start.replace(/[\ud800-\udbff]$/, '');
}

function hiddenWords(hidden: string): string {
  const lines = hidden.split('\n').length - 1;
  return lines > 0 ? `${lines.toLocaleString()} more lines` : `${hidden.length.toLocaleString()} more characters`;
}
