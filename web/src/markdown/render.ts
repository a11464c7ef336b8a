// Markdown to HTML that is safe to put into the page, block by block.
// Raw HTML in an answer is shown as text, and the result is sanitized as well.
// The caller bounds the length of the text; `pieces.ts` cuts a longer one.

import DOMPurify from 'dompurify';
import { Lexer, Marked, type Token, type Tokens, type TokensList } from 'marked';

import { BoundedTokenizer } from './bounded-tokenizer';

export interface Block {
  /** Changes only when the block changes, so that a streaming answer updates only its last block. */
  key: string;
  html: string;
}

/** The most characters of HTML that are cached; further blocks are rendered again. */
const REMEMBERED_CHARACTERS = 4_000_000;

/** Harmless tags without attributes that models use in tables and text. */
const HARMLESS_TAG = /^<\/?(?:br|sub|sup|kbd)\s*\/?>$/i;

const ALLOWED_ADDRESS = /^(?:https?:|mailto:)/i;

/** Attributes that this renderer writes and that are not addresses. */
const PLAIN_ATTRIBUTES = ['target', 'rel', 'type', 'align', 'start', 'checked', 'disabled', 'tabindex'];

const marked = new Marked({
  gfm: true,
  breaks: false,
  renderer: {
    html({ text }: Tokens.HTML | Tokens.Tag): string {
      return HARMLESS_TAG.test(text.trim()) ? text : escapeHtml(text);
    },
    link({ href, tokens }: Tokens.Link): string {
      const text = this.parser.parseInline(tokens);
      if (!ALLOWED_ADDRESS.test(href)) return text;
      return `<a href="${escapeHtml(href)}" target="_blank" rel="noopener noreferrer">${text}</a>`;
    },
    // An external image would reveal the reader to its server, so it becomes a link.
    image({ href, text }: Tokens.Image): string {
      const label = escapeHtml(text || href);
      if (!ALLOWED_ADDRESS.test(href)) return label;
      return `<a href="${escapeHtml(href)}" target="_blank" rel="noopener noreferrer">${label}</a>`;
    },
    code({ text, lang }: Tokens.Code): string {
      const language = escapeHtml((lang ?? '').trim().split(/\s/)[0] ?? '');
      return (
        `<div class="code"><div class="code-head"><span>${language || 'text'}</span>` +
        `<button type="button" class="copy">Copy</button></div>` +
        `<pre tabindex="0"><code>${escapeHtml(text)}</code></pre></div>`
      );
    },
    table(token: Tokens.Table): string {
      const row = (cells: Tokens.TableCell[], tag: string): string =>
        `<tr>${cells.map((cell) => tableCell(cell, tag, this.parser.parseInline(cell.tokens))).join('')}</tr>`;
      const body = token.rows.map((cells) => row(cells, 'td')).join('');
      return `<div class="table"><table><thead>${row(token.header, 'th')}</thead><tbody>${body}</tbody></table></div>`;
    },
  },
});

const remembered = new Map<string, string>();
let rememberedCharacters = 0;

/** The blocks of a Markdown text, each as sanitized HTML. */
export function markdownBlocks(text: string): Block[] {
  const tokenizer = new BoundedTokenizer();
  const tokens = lexer(tokenizer).lex(text);
  // A block of a text with link definitions, or beyond the search limit, depends on other blocks and is not cached.
  const memory = Object.keys(tokens.links).length === 0 && !tokenizer.exhausted ? remembered : undefined;
  return tokens
    .filter((token) => token.type !== 'space' && token.type !== 'def')
    .map((token, index) => ({ key: `${index}:${token.type}`, html: blockHtml(token, tokens, memory) }));
}

/** One line of Markdown, for the messages of tool calls. */
export function inlineMarkdown(text: string): string {
  return sanitize(marked.Parser.parseInline(lexer(new BoundedTokenizer()).inlineTokens(text), marked.defaults));
}

function lexer(tokenizer: BoundedTokenizer): Lexer {
  return new Lexer({ ...marked.defaults, tokenizer });
}

function blockHtml(token: Token, all: TokensList, memory: Map<string, string> | undefined): string {
  const known = memory?.get(token.raw);
  if (known !== undefined) return known;
  const html = sanitize(marked.parser(Object.assign([token], { links: all.links })));
  if (memory) {
    rememberedCharacters += token.raw.length + html.length;
    if (rememberedCharacters > REMEMBERED_CHARACTERS) {
      memory.clear();
      rememberedCharacters = 0;
    }
    memory.set(token.raw, html);
  }
  return html;
}

function tableCell(cell: Tokens.TableCell, tag: string, html: string): string {
  return cell.align ? `<${tag} align="${cell.align}">${html}</${tag}>` : `<${tag}>${html}</${tag}>`;
}

function sanitize(html: string): string {
  return DOMPurify.sanitize(html, {
    ALLOWED_TAGS: [
      ...['p', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6', 'ul', 'ol', 'li', 'blockquote', 'hr', 'br', 'pre', 'code', 'div'],
      ...['span', 'button', 'em', 'strong', 'del', 'a', 'sub', 'sup', 'kbd', 'input'],
      ...['table', 'thead', 'tbody', 'tr', 'th', 'td'],
    ],
    ALLOWED_ATTR: ['href', 'class', ...PLAIN_ATTRIBUTES],
    // The sanitizer checks every value as an address unless the attribute is listed here.
    ADD_URI_SAFE_ATTR: PLAIN_ATTRIBUTES,
    ALLOWED_URI_REGEXP: ALLOWED_ADDRESS,
  });
}

function escapeHtml(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;').replaceAll("'", '&#39;');
}
