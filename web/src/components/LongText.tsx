// Text of any length: pieces of bounded size, of which the first ones and the last one are shown at first.

import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useRef } from 'preact/hooks';

import { Pieces } from '../markdown/pieces';

/** Pieces that are shown at first, and with every further click. */
const SHOWN_PIECES = 4;

interface PieceListProps {
  pieces: readonly string[];
  children(piece: string, index: number): ComponentChildren;
}

/** Shows the first pieces and the last one, and a button for those between them. */
export function PieceList({ pieces, children: show }: PieceListProps) {
  const shown = useSignal(SHOWN_PIECES);
  const last = pieces.length - 1;
  const hidden = pieces.slice(shown.value, last);
  if (hidden.length === 0) return <>{pieces.map(show)}</>;
  const characters = hidden.reduce((sum, piece) => sum + piece.length, 0);
  const more = (
    <button key="more" type="button" class="more" onClick={() => (shown.value += SHOWN_PIECES)}>
      Show more ({characters.toLocaleString()} characters are hidden)
    </button>
  );
  // One list, so that the elements of a piece stay when others appear.
  return <>{[...pieces.slice(0, shown.value).map(show), more, show(pieces[last]!, last)]}</>;
}

export function LongText({ text }: { text: string }) {
  const pieces = useRef<Pieces>(undefined);
  pieces.current ??= Pieces.ofPlainText();
  return (
    <PieceList pieces={pieces.current.update(text)}>
      {(piece, index) => (
        <div key={index} class="plain-piece">
          {piece}
        </div>
      )}
    </PieceList>
  );
}
