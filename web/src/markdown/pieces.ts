// Cuts a text into pieces of bounded size, each of which is parsed and laid out on its own. A cut depends only on the
// text before it and on the window that it cuts, so it does not move while text is appended.

/** The size of a piece: what the Markdown lexer handles within a frame, whatever the text is. */
export const MAX_PIECE_CHARACTERS = 8_000;
export const MAX_PIECE_LINES = 300;
/** Browsers need quadratic time for line breaks in these scripts, so a piece contains fewer of their characters. */
export const MAX_COMPLEX_CHARACTERS = 2_000;

/** Right-to-left scripts and marks; Thai, Lao, Myanmar and Khmer, which are written without spaces. */
const COMPLEX =
  /[\u0590-\u08ff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc\ud802\ud803\ud83a\ud83b]/g;

/** A longer line does not open a fence that continues in the next piece. */
const MAX_FENCE_LINE = 200;

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)[^`]*$/;
/** A line that does not continue a list, a quote or a table. */
const NEW_BLOCK = /^(?![-*+>|]|\d+[.)])\S/;

/** How good a line start is as a place for a cut. */
enum Place {
  Line = 1,
  BlankLine,
  NewBlock,
}

interface Cut {
  end: number;
  /** The fence that is open at the cut and is opened again in the next piece. */
  fence: string | undefined;
}

/** Finds the first cut of a text, which has at most one character more than the limit; undefined if it fits. */
type Cutter = (window: string, limit: number, fence: string | undefined) => Cut | undefined;

/** The pieces of a growing text. Text that was appended is cut; everything before it is kept. */
export class Pieces {
  #cutter: Cutter;
  #text = '';
  #finished: string[] = [];
  /** Where the last piece starts, and the fence that is open there. */
  #start = 0;
  #fence: string | undefined;

  private constructor(cutter: Cutter) {
    this.#cutter = cutter;
  }

  static ofMarkdown(): Pieces {
    return new Pieces(cutMarkdown);
  }

  static ofPlainText(): Pieces {
    return new Pieces(cutPlainText);
  }

  update(text: string): readonly string[] {
    if (!text.startsWith(this.#text)) this.#reset();
    this.#text = text;
    for (;;) {
      // One character more than fits tells that a full window is not the end of the text.
      const longest = text.slice(this.#start, this.#start + MAX_PIECE_CHARACTERS + 1);
      const limit = pieceLimit(longest);
      const window = longest.slice(0, limit + 1);
      const cut = this.#cutter(window, limit, this.#fence);
      if (cut === undefined) return [...this.#finished, opened(this.#fence, window)];
      this.#finished.push(opened(this.#fence, window.slice(0, cut.end)));
      this.#start += cut.end;
      this.#fence = cut.fence;
    }
  }

  #reset(): void {
    this.#finished = [];
    this.#start = 0;
    this.#fence = undefined;
  }
}

function opened(fence: string | undefined, text: string): string {
  return fence === undefined ? text : `${fence}\n${text}`;
}

function pieceLimit(window: string): number {
  let complex = 0;
  for (const { index } of window.matchAll(COMPLEX)) {
    if (++complex === MAX_COMPLEX_CHARACTERS) return Math.min(index + 1, MAX_PIECE_CHARACTERS);
  }
  return MAX_PIECE_CHARACTERS;
}

/** Cuts before a top-level block if possible, else at a blank line, else at a line, else in the line. */
function cutMarkdown(window: string, limit: number, fence: string | undefined): Cut | undefined {
  let open = fence;
  let blankBefore = false;
  let best: (Cut & { place: Place }) | undefined;
  let lines = 0;
  for (let start = 0; start < window.length; lines++) {
    // The line after a full piece may be incomplete, so it does not decide about the cut.
    if (start >= limit || lines >= MAX_PIECE_LINES) return best ?? { end: start, fence: open };
    const newline = window.indexOf('\n', start);
    const line = newline < 0 ? window.slice(start) : window.slice(start, newline);
    if (start >= limit / 2 || lines >= MAX_PIECE_LINES / 2) {
      const place = open !== undefined || !blankBefore ? Place.Line : NEW_BLOCK.test(line) ? Place.NewBlock : Place.BlankLine;
      if (best === undefined || place >= best.place) best = { end: start, fence: open, place };
    }
    open = fenceAfter(line, open);
    blankBefore = line.trim() === '';
    start = newline < 0 ? window.length : newline + 1;
  }
  if (window.length <= limit) return undefined;
  return best ?? { end: characterBoundary(window, limit), fence };
}

function cutPlainText(window: string, limit: number): Cut | undefined {
  let lines = 0;
  let end = 0;
  for (let newline = window.indexOf('\n'); newline >= 0 && newline < limit; newline = window.indexOf('\n', newline + 1)) {
    end = newline + 1;
    if (++lines >= MAX_PIECE_LINES && end < window.length) return { end, fence: undefined };
  }
  if (window.length <= limit) return undefined;
  return { end: end >= limit / 2 ? end : characterBoundary(window, limit), fence: undefined };
}

/** The fence that is open after a line. */
function fenceAfter(line: string, open: string | undefined): string | undefined {
  const [, marker = '', info = ''] = (line.length <= MAX_FENCE_LINE && FENCE.exec(line)) || [];
  if (marker === '') return open;
  if (open === undefined) return marker + info;
  return info === '' && open.startsWith(marker[0]!) && marker.length >= markerLength(open) ? undefined : open;
}

function markerLength(fence: string): number {
  return /^(?:`+|~+)/.exec(fence)?.[0].length ?? 0;
}

/** The largest cut within the limit that does not split a surrogate pair. */
function characterBoundary(window: string, limit: number): number {
  const before = window.charCodeAt(limit - 1);
  return before >= 0xd800 && before <= 0xdbff ? limit - 1 : limit;
}
