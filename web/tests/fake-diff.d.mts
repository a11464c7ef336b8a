export function diffDocument(before: string | undefined, after: string | undefined): object;
export function revertLines(before: string, after: string, start: number, end: number): string;
