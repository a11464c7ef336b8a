// The agent's reasoning: folded, with its newest line shown while it streams.

export function Thinking({ text, streaming }: { text: string; streaming: boolean }) {
  const lines = text.split('\n').filter((line) => line.trim() !== '');
  const preview = (streaming ? lines.at(-1) : lines[0]) ?? '';
  return (
    <details class={streaming ? 'fold thinking is-streaming' : 'fold thinking'}>
      <summary>
        <span class="fold-name">{streaming ? 'Thinking' : 'Thoughts'}</span>
        <span class="fold-preview">{preview}</span>
      </summary>
      <div class="thinking-text">{text}</div>
    </details>
  );
}
