// A part of the answer in Markdown. While it streams, only its last piece is parsed again.

import { useEffect, useReducer, useRef } from 'preact/hooks';

import { Pieces } from '../../markdown/pieces';
import { type Block, markdownBlocks } from '../../markdown/render';
import { renderBudget } from '../../render-budget';
import { ErrorBoundary } from '../ErrorBoundary';
import { PieceList } from '../LongText';

export function MarkdownText({ text, streaming }: { text: string; streaming: boolean }) {
  const pieces = useRef<Pieces>(undefined);
  pieces.current ??= Pieces.ofMarkdown();
  return (
    <div class={streaming ? 'markdown is-streaming' : 'markdown'}>
      <PieceList pieces={pieces.current.update(text)}>
        {(piece, index) => (
          <ErrorBoundary key={index} of={piece} fallback={() => <SourceText text={piece} />}>
            <MarkdownPiece text={piece} />
          </ErrorBoundary>
        )}
      </PieceList>
    </div>
  );
}

/** Shows an ellipsis until the render budget allows to parse the text: the layout of its source takes time, too. */
function MarkdownPiece({ text }: { text: string }) {
  const parsed = useRef<{ text: string; blocks: Block[] }>(undefined);
  const [, render] = useReducer((count: number) => count + 1, 0);
  if (parsed.current?.text !== text) {
    const blocks = renderBudget.run(() => markdownBlocks(text));
    if (blocks) parsed.current = { text, blocks };
  }
  const waiting = parsed.current?.text !== text;
  useEffect(() => (waiting ? renderBudget.wait(() => render(undefined)) : undefined));
  if (!parsed.current) return <div class="block">…</div>;
  return (
    <>
      {parsed.current.blocks.map((block) => (
        <div key={block.key} class="block" dangerouslySetInnerHTML={{ __html: block.html }} />
      ))}
    </>
  );
}

function SourceText({ text }: { text: string }) {
  return <div class="block source">{text}</div>;
}
