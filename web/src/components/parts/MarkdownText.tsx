// A part of the answer in Markdown. While it streams, only its last block changes in the document.

import { useMemo } from 'preact/hooks';

import { markdownBlocks } from '../../markdown';

export function MarkdownText({ text, streaming }: { text: string; streaming: boolean }) {
  const blocks = useMemo(() => markdownBlocks(text), [text]);
  return (
    <div class={streaming ? 'markdown is-streaming' : 'markdown'}>
      {blocks.map((block) => (
        <div key={block.key} class="block" dangerouslySetInnerHTML={{ __html: block.html }} />
      ))}
    </div>
  );
}
