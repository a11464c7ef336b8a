// A line diff for small contents, as the fake host serves it to the page.

const CONTEXT_LINES = 3;

/** The diff document of two contents; `undefined` for an absent file. */
export function diffDocument(before, after) {
  if ([before, after].some((content) => content?.includes('\0'))) {
    return { binary: true, added: 0, removed: 0, truncated: false, hunks: [] };
  }
  const lines = diffLines(splitLines(before ?? ''), splitLines(after ?? ''));
  return {
    binary: false,
    added: lines.filter((line) => line.kind === 'added').length,
    removed: lines.filter((line) => line.kind === 'removed').length,
    truncated: false,
    hunks: hunksOf(lines),
  };
}

/** Reverts the changes that touch the lines `start..end` of the content after the change, counted from 0. */
export function revertLines(before, after, start, end) {
  const result = [];
  let position = 0;
  for (const run of runsOf(diffLines(splitLines(before), splitLines(after)))) {
    const added = run.filter((line) => line.kind === 'added').length;
    const length = run[0].kind === 'context' ? run.length : added;
    const touches = added > 0 && start < end ? position < end && start < position + added : position <= end && start <= position + added;
    const isReverted = run[0].kind !== 'context' && touches;
    const kept = run.filter((line) => line.kind === 'context' || line.kind === (isReverted ? 'removed' : 'added'));
    result.push(...kept.map((line) => line.text));
    position += length;
  }
  return result.join('');
}

function splitLines(text) {
  return text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
}

/** The lines of both contents in order, by the longest common subsequence. */
function diffLines(before, after) {
  const lengths = Array.from({ length: before.length + 1 }, () => new Array(after.length + 1).fill(0));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      lengths[i][j] = before[i] === after[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      lines.push({ kind: 'context', text: before[i], old: ++i, new: ++j });
    } else if (i < before.length && (j === after.length || lengths[i + 1][j] >= lengths[i][j + 1])) {
      lines.push({ kind: 'removed', text: before[i], old: ++i });
    } else {
      lines.push({ kind: 'added', text: after[j], new: ++j });
    }
  }
  return lines;
}

/** Runs of unchanged lines and of changed lines. */
function runsOf(lines) {
  const runs = [];
  for (const line of lines) {
    const last = runs.at(-1);
    if (last && (last[0].kind === 'context') === (line.kind === 'context')) last.push(line);
    else runs.push([line]);
  }
  return runs;
}

function hunksOf(lines) {
  const near = lines.map((_, index) =>
    lines.slice(Math.max(0, index - CONTEXT_LINES), index + CONTEXT_LINES + 1).some((line) => line.kind !== 'context'),
  );
  const hunks = [];
  lines.forEach((line, index) => {
    if (!near[index]) return;
    if (!near[index - 1]) hunks.push([]);
    hunks.at(-1).push(line);
  });
  return hunks.map((hunk) => ({
    oldStart: hunk.find((line) => line.old !== undefined)?.old ?? 0,
    newStart: hunk.find((line) => line.new !== undefined)?.new ?? 0,
    lines: runsOf(hunk).flatMap(wireLines),
  }));
}

/** Lines as on the wire; a removed line and the added line in its place have their common start and end in plain. */
function wireLines(run) {
  const removed = run.filter((line) => line.kind === 'removed');
  const added = run.filter((line) => line.kind === 'added');
  return run.map((line) => {
    const text = line.text.replace(/\n$/, '');
    const others = line.kind === 'removed' ? added : removed;
    const index = (line.kind === 'removed' ? removed : added).indexOf(line);
    const other = line.kind === 'context' ? undefined : others[index]?.text.replace(/\n$/, '');
    const numbers = { ...(line.old ? { old: line.old } : {}), ...(line.new ? { new: line.new } : {}) };
    const end = line.text.endsWith('\n') ? {} : { noNewline: true };
    return { kind: line.kind, ...numbers, parts: other === undefined ? [[text, false]] : words(text, other), ...end };
  });
}

function words(text, other) {
  let start = 0;
  while (start < Math.min(text.length, other.length) && text[start] === other[start]) start++;
  let end = 0;
  while (end < Math.min(text.length, other.length) - start && text.at(-1 - end) === other.at(-1 - end)) end++;
  const middle = text.slice(start, text.length - end);
  return [
    [text.slice(0, start), false],
    [middle, true],
    [text.slice(text.length - end), false],
  ].filter(([part]) => part !== '');
}
