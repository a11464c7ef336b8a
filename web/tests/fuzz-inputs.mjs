// Seeded generator of hostile agent data: structured Markdown, repeated delimiters, odd characters, wrong types.

const DELIMITERS = [
  ...[
    '>',
    '> ',
    '- ',
    '* ',
    '+ ',
    '1. ',
    '1) ',
    '- > ',
    '> 1. ',
    '- [x] ',
    '*',
    '**',
    '***',
    '_',
    '__',
    '*_',
    '*_a',
    '**a*',
    '*a**b',
    '_a_b',
  ],
  ...[
    '~',
    '~~a',
    '[',
    '![',
    '[a](',
    '[a][',
    '](',
    '[[a]',
    '[a](b)',
    '[a](<',
    '[a](b "',
    '`',
    '``a`',
    '<',
    '<a ',
    '<!--',
    '<a href="',
    '</',
  ],
  ...[
    '&',
    '&#',
    '&amp;',
    '\\',
    '\\\n',
    '|',
    '|-',
    '|a',
    'a|b\n',
    '| a |\n|---|\n',
    '# a\n',
    '```\n',
    '~~~\n',
    '    a\n',
    '\t',
    '- a\n',
    '- a\n\n',
  ],
  ...[
    '> a\n',
    '>> a\n',
    'a\n',
    'a  \n',
    'a\n=\n',
    'a\n-\n',
    'www.a',
    'http://',
    'a@b',
    'a@',
    '!',
    '-',
    '[a]: b\n',
    '[a]: b "',
    '<div>\n',
    '<?',
  ],
  ...['<![CDATA[', 'a', 'é', '😀', '\u202e', '\u0000', '\u200b', 'e\u0301', '"', '(', '[^a]', '{', '\u2028', '\r'],
];

const ATTACKS = [
  '<img src=x onerror="globalThis.harmed=1">',
  '<script>globalThis.harmed=1</script>',
  '<svg onload=globalThis.harmed=1>',
  '<svg><style><img src=x onerror=globalThis.harmed=1></style></svg>',
  '<math><mtext><table><mglyph><style><img src=x onerror=globalThis.harmed=1>',
  '<a href="javascript:globalThis.harmed=1">x</a>',
  '[x](javascript:globalThis.harmed=1)',
  '[x](JaVaScRiPt&colon;globalThis.harmed=1)',
  '<javascript:globalThis.harmed=1>',
  '![x](data:image/svg+xml,<svg onload=globalThis.harmed=1>)',
  '![x" onerror="globalThis.harmed=1](https://elsewhere.example/x.png)',
  '[x](https://a.example/"onmouseover="globalThis.harmed=1)',
  '```"><img src=x onerror=globalThis.harmed=1>\nx\n```',
  '<iframe srcdoc="<script>parent.harmed=1</script>"></iframe>',
  '<form action="https://elsewhere.example"><input name=q><button>Send</button></form>',
  '<style>*{display:none}</style>',
  '<kbd onclick=globalThis.harmed=1>x</kbd>',
  '<pre><code><img src=x onerror=globalThis.harmed=1>',
  '<base href="https://elsewhere.example/"><link rel=stylesheet href=x><meta http-equiv=refresh content="0;url=https://elsewhere.example">',
];

const CHARACTERS = [
  'a',
  'B',
  ' ',
  '\n',
  '0',
  'ü',
  '中',
  '😀',
  '👩‍👩‍👧',
  'e\u0301',
  '\u202e',
  '\u2066',
  '\u200f',
  '\u0007',
  '\u0000',
  '\ufeff',
  '\ud800',
  '\ufffd',
  'ا',
  'ש',
  '\u0e33',
];

/** Deterministic random numbers (mulberry32). */
export class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  next() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.#state ^ (this.#state >>> 15), this.#state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  }

  below(limit) {
    return Math.floor(this.next() * limit);
  }

  chance(probability) {
    return this.next() < probability;
  }

  pick(choices) {
    return choices[this.below(choices.length)];
  }

  /** Small numbers are much more likely than large ones. */
  size(limit) {
    return Math.floor(limit ** this.next());
  }

  /** An array of generated values. */
  many(limit, generate) {
    return Array.from({ length: 1 + this.below(limit) }, generate);
  }
}

/** A Markdown text: a document, repeated delimiters, or a mixture that was cut and spliced. */
export function markdown(random) {
  const text = random.pick([document, document, repeated, ladder, mixture, hugeWord])(random);
  return random.chance(0.3) ? mutated(random, text) : text;
}

/** The chunks in which a text is streamed. */
export function chunks(random, text) {
  const cuts = random.many(random.pick([1, 4, 12]), () => random.below(text.length + 1)).sort((a, b) => a - b);
  return [0, ...cuts].map((start, index) => text.slice(start, cuts[index] ?? text.length)).filter((chunk) => chunk !== '');
}

/** A value for a field: mostly a text, sometimes something that the field must not contain. */
export function fieldValue(random) {
  if (random.chance(0.75)) return markdown(random);
  return random.pick([
    null,
    -1,
    1e300,
    Number.MAX_SAFE_INTEGER,
    true,
    [],
    {},
    { markdown: 7 },
    { type: 'div', props: {} },
    '',
    'x'.repeat(50_000),
  ]);
}

function document(random) {
  return random.many(8, () => block(random, 0)).join(random.pick(['\n\n', '\n', '\n\n\n']));
}

function block(random, depth) {
  const deeper = () => random.many(3, () => block(random, depth + 1)).join('\n');
  const indented = (prefix, text) => text.replaceAll('\n', `\n${prefix}`);
  const kind = depth > 20 ? 0 : random.below(12);
  switch (kind) {
    case 1:
      return `> ${indented('> ', deeper())}`;
    case 2:
      return random.many(4, () => `- ${indented('  ', deeper())}`).join('\n');
    case 3:
      return random.many(4, () => `${random.below(99)}. ${indented('   ', deeper())}`).join('\n');
    case 4:
      return table(random);
    case 5:
      return `${random.pick(['```', '~~~', '`````'])}${random.pick(['', 'rust', '"><b>', ' a b'])}\n${inline(random, 0)}\n${random.pick(['```', '~~~', ''])}`;
    case 6:
      return `${'#'.repeat(1 + random.below(8))} ${inline(random, 0)}`;
    case 7:
      return random.pick(ATTACKS);
    case 8:
      return random.pick(['---', '***', '===', '<br>', '    code', '[a]: https://a.example "t"', '[^1]: note']);
    default:
      return random.many(5, () => inline(random, 0)).join(random.pick([' ', '\n', '  \n']));
  }
}

function inline(random, depth) {
  const deeper = () => (depth > 30 ? 'x' : inline(random, depth + 1));
  switch (random.below(14)) {
    case 0:
      return `*${deeper()}*`;
    case 1:
      return `**${deeper()}**`;
    case 2:
      return `_${deeper()} ${deeper()}_`;
    case 3:
      return `~~${deeper()}~~`;
    case 4:
      return `[${deeper()}](${random.pick(['https://a.example', 'javascript:1', '<a b>', 'mailto:a@b.example', '', '//x', 'file:///etc/passwd'])})`;
    case 5:
      return `![${deeper()}](https://a.example/x.png "t")`;
    case 6:
      return `\`${random.pick(['a', '<b>', '``', ' '])}\``;
    case 7:
      return random.pick(ATTACKS);
    case 8:
      return random.pick(DELIMITERS);
    case 9:
      return random.pick(['&lt;', '&#60;script&#62;', '&#x202e;', '&nbsp;', '&notanentity;', '&#0;', '&#99999999;']);
    case 10:
      return random.many(12, () => random.pick(CHARACTERS)).join('');
    case 11:
      return random.pick(['https://a.example/?a=1&b=<2>', 'www.a.example', 'a@b.example', '<https://a.example>', '[a]', '[a][b]']);
    default:
      return random.many(8, () => random.pick(['inn', 'guest', 'a', 'the', 'lantern.', 'ünï'])).join(' ');
  }
}

function table(random) {
  const columns = 1 + random.size(60);
  const row = (cell) => `|${Array.from({ length: columns }, cell).join('|')}|`;
  const cell = () => inline(random, 25).replaceAll('\n', ' ');
  return [row(cell), row(() => random.pick(['---', ':--', '--:', ':-:'])), ...random.many(6, () => row(cell))].join('\n');
}

function repeated(random) {
  const unit = random.chance(0.7) ? random.pick(DELIMITERS) : random.pick(DELIMITERS) + random.pick(DELIMITERS);
  const count = random.pick([50, 500, 2_000, 4_000, 8_000]) + random.below(50);
  return (
    random.pick(['', 'x ', '- a\n  ', '> ', '[a]: b\n\n', '| a |\n|---|\n| ']) +
    unit.repeat(count) +
    random.pick(['', 'a', '\n\nend', unit.trim().split('').reverse().join('').repeat(count)])
  );
}

/** Every line is nested one step deeper than the one before. */
function ladder(random) {
  const unit = random.pick(DELIMITERS);
  const step = random.pick([unit, '  ', '    ', '> ', '   ']);
  return Array.from({ length: 10 + random.below(150) }, (_, line) => step.repeat(line) + unit + random.pick(['', 'a', ' a'])).join('\n');
}

function mixture(random) {
  return random
    .many(random.pick([20, 400, 3_000]), () => random.pick(random.chance(0.8) ? DELIMITERS : ATTACKS))
    .join(random.pick(['', '', ' ', '\n']));
}

function hugeWord(random) {
  const length = random.pick([5_000, 20_000, 100_000, 300_000]);
  const unit = random.pick([...CHARACTERS, 'abc', 'a-', 'a\u00ad', 'ab cd ', 'line\n', '中文']);
  return random.pick(['', '```\n', '# ', '> ', '- ', '`']) + unit.repeat(Math.ceil(length / unit.length));
}

function mutated(random, text) {
  const at = random.below(text.length + 1);
  switch (random.below(4)) {
    case 0:
      return text.slice(at);
    case 1:
      return text.slice(0, at) + random.pick(DELIMITERS).repeat(random.size(300)) + text.slice(at);
    case 2:
      return text.slice(0, at) + random.pick(CHARACTERS) + text.slice(at + 1);
    default:
      return text.replaceAll('\n', random.pick(['\r\n', '\n> ', '\n  ', '\n\n', ' ']));
  }
}
