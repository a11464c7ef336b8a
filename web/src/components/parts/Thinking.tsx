// The agent's reasoning: folded, with its newest line shown while it streams.

import { oneLine } from '../../format';
import { LongText } from '../LongText';

/** The characters in which the line for the preview is looked for. */
const PREVIEW_CHARACTERS = 2_000;

export function Thinking({ text, streaming }: { text: string; streaming: boolean }) {
  return (
    <details class={streaming ? 'fold thinking is-streaming' : 'fold thinking'}>
      <summary>
        <span class="fold-name">{streaming ? 'Thinking' : 'Thoughts'}</span>
        <span class="fold-preview">{streaming ? lastLine(text) : firstLine(text)}</span>
      </summary>
      <div class="thinking-text">
        <LongText text={text} />
      </div>
    </details>
  );
}

function firstLine(text: string): string {
  return oneLine(filledLines(text.slice(0, PREVIEW_CHARACTERS))[0]);
}

function lastLine(text: string): string {
  return oneLine(filledLines(text.slice(-PREVIEW_CHARACTERS)).at(-1));
}

function filledLines(text: string): string[] {
  return text.split('\n').filter((line) => line.trim() !== '');
}
