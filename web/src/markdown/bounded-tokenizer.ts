// Limits the work of the Markdown lexer. Its recursion and its search for closing delimiters depend on the text, so a
// small text could otherwise exhaust the stack or block the page. What exceeds a limit stays text.

import { Tokenizer, type Tokens } from 'marked';

/** Nested quotes and lists. Deeper ones are indented out of the column anyway. */
export const MAX_BLOCK_DEPTH = 12;
/** Nested emphasis and links. */
export const MAX_INLINE_DEPTH = 6;
/** Characters that all searches in one text may pass; then the rest of each paragraph stays text. */
const MAX_SEARCHED = 250_000;

/** The lexer looks for an e-mail address from every character of such a run. */
const ADDRESS_RUN = /^[a-zA-Z0-9.!#$%&'*+/=?_`{|}~-]+/;

export class BoundedTokenizer extends Tokenizer {
  #blockDepth = 0;
  #inlineDepth = 0;
  #searched = 0;

  /** Whether the search limit was reached, so that a block may depend on the blocks before it. */
  get exhausted(): boolean {
    return this.#searched >= MAX_SEARCHED;
  }

  override blockquote(src: string): Tokens.Blockquote | undefined {
    return this.#inBlock(() => super.blockquote(src));
  }

  override list(src: string): Tokens.List | undefined {
    return this.#inBlock(() => super.list(src));
  }

  override emStrong(src: string, maskedSrc: string, prevChar?: string): Tokens.Em | Tokens.Strong | undefined {
    return this.#inInline(src, '*_', () => super.emStrong(src, maskedSrc, prevChar));
  }

  override del(src: string, maskedSrc: string, prevChar?: string): Tokens.Del | undefined {
    return this.#inInline(src, '~', () => super.del(src, maskedSrc, prevChar));
  }

  override codespan(src: string): Tokens.Codespan | undefined {
    return this.#inInline(src, '`', () => super.codespan(src));
  }

  override link(src: string): Tokens.Link | Tokens.Image | undefined {
    return this.#inInline(src, '[!', () => super.link(src));
  }

  override reflink(src: string, links: Tokenizer['lexer']['tokens']['links']): ReturnType<Tokenizer['reflink']> {
    return this.#inInline(src, '[!', () => super.reflink(src, links));
  }

  override tag(src: string): Tokens.Tag | undefined {
    const tag = this.#inInline(src, '<', () => super.tag(src));
    // Tags are shown as text, so text inside of `<pre>` or `<code>` is escaped like any other.
    this.lexer.state.inRawBlock = false;
    return tag;
  }

  override inlineText(src: string): Tokens.Text | undefined {
    this.#searched += ADDRESS_RUN.exec(src)?.[0].length ?? 0;
    if (this.exhausted) return { type: 'text', raw: src, text: src, escaped: false };
    return super.inlineText(src);
  }

  #inBlock<T>(tokenize: () => T | undefined): T | undefined {
    if (this.#blockDepth >= MAX_BLOCK_DEPTH) return undefined;
    this.#blockDepth++;
    try {
      return tokenize();
    } finally {
      this.#blockDepth--;
    }
  }

  #inInline<T extends { raw: string }>(src: string, openers: string, tokenize: () => T | undefined): T | undefined {
    if (src === '' || !openers.includes(src[0]!)) return undefined;
    if (this.#inlineDepth >= MAX_INLINE_DEPTH || this.exhausted) return undefined;
    this.#inlineDepth++;
    try {
      const token = tokenize();
      // A search that fails has passed the rest of the paragraph.
      this.#searched += token?.raw.length ?? src.length;
      return token;
    } finally {
      this.#inlineDepth--;
    }
  }
}
