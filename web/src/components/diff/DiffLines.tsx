// Lines of a diff as a table, in one column or in two. Colours, signs and hidden words say the same.

import { useMemo } from 'preact/hooks';

import type { DiffLine, LineKind } from '../../edits/diff-document';
import { pairLines } from '../../edits/diff-layout';
import type { DiffStyle } from '../../edits/diff-style';

const SIGNS: Record<LineKind, string> = { context: '', added: '+', removed: '−' };
const WORDS: Record<LineKind, string> = { context: '', added: 'Added: ', removed: 'Removed: ' };

export function DiffLines({ lines, style }: { lines: readonly DiffLine[]; style: DiffStyle }) {
  return useMemo(() => (style === 'inline' ? <Inline lines={lines} /> : <SideBySide lines={lines} />), [lines, style]);
}

function Inline({ lines }: { lines: readonly DiffLine[] }) {
  return (
    <table class="diff-lines is-inline">
      <tbody>
        {lines.map((line, index) => (
          <tr key={index} class={`is-${line.kind}`}>
            <td class="diff-number is-old">{line.old}</td>
            <td class="diff-number">{line.new}</td>
            <Sign line={line} />
            <Code line={line} />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function SideBySide({ lines }: { lines: readonly DiffLine[] }) {
  return (
    <table class="diff-lines is-side-by-side">
      <colgroup>
        <col class="col-number" />
        <col class="col-sign" />
        <col />
        <col class="col-number" />
        <col class="col-sign" />
        <col />
      </colgroup>
      <tbody>
        {pairLines(lines).map(({ left, right }, index) => (
          <tr key={index}>
            <Half line={left} number={left?.old} />
            <Half line={right} number={right?.new} />
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Half({ line, number }: { line: DiffLine | undefined; number: number | undefined }) {
  const look = line ? `is-${line.kind}` : 'is-empty';
  return (
    <>
      <td class={`diff-number ${look}`}>{number}</td>
      {line ? <Sign line={line} /> : <td class="diff-sign is-empty" />}
      {line ? <Code line={line} /> : <td class="diff-code is-empty" />}
    </>
  );
}

function Sign({ line }: { line: DiffLine }) {
  return (
    <td class={`diff-sign is-${line.kind}`}>
      {line.kind !== 'context' && (
        <>
          <span aria-hidden="true">{SIGNS[line.kind]}</span>
          <span class="visually-hidden">{WORDS[line.kind]}</span>
        </>
      )}
    </td>
  );
}

function Code({ line }: { line: DiffLine }) {
  return (
    <td class={`diff-code is-${line.kind}`}>
      {line.parts.map(([text, emphasised], index) => (emphasised ? <mark key={index}>{text}</mark> : text))}
      {line.noNewline && <span class="diff-note">no line break at the end</span>}
    </td>
  );
}
