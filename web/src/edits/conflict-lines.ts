// The lines of a file with conflict marks that are shown: the conflicts, and a few lines around them.

export interface ConflictLine {
  text: string;
  kind: 'plain' | 'marker' | 'omission';
}

/** The lines that are shown before and after a conflict. */
const AROUND = 3;

export function conflictLines(text: string): ConflictLine[] {
  const lines = text.replace(/\n$/, '').split('\n');
  const shown = shownLines(lines);
  // Without marks there is nothing to select by.
  if (!shown.includes(true)) return lines.map((line) => ({ text: line, kind: 'plain' }));
  const result: ConflictLine[] = [];
  let omitted = 0;
  const endOmission = () => {
    if (omitted > 0) result.push({ text: `… ${omitted === 1 ? '1 line' : `${omitted.toLocaleString()} lines`}`, kind: 'omission' });
    omitted = 0;
  };
  lines.forEach((line, index) => {
    if (!shown[index]) {
      omitted++;
      return;
    }
    endOmission();
    result.push({ text: line, kind: isMarker(line) ? 'marker' : 'plain' });
  });
  endOmission();
  return result;
}

function isMarker(line: string): boolean {
  return /^(<{7}|={7}|>{7}|\|{7})/.test(line);
}

function shownLines(lines: readonly string[]): boolean[] {
  const shown = lines.map(() => false);
  let start: number | undefined;
  lines.forEach((line, index) => {
    if (line.startsWith('<<<<<<<')) start ??= index;
    if (!line.startsWith('>>>>>>>') || start === undefined) return;
    shown.fill(true, Math.max(0, start - AROUND), index + AROUND + 1);
    start = undefined;
  });
  return shown;
}
