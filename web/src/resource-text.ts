// The text of a resource that the host returned.

export interface ResourceContent {
  data: string;
  encoding: string;
}

/** Returns the text; throws if the content is not text. */
export function resourceText({ data, encoding }: ResourceContent): string {
  if (encoding === 'utf-8') return data;
  if (encoding !== 'base64') throw new Error(`its encoding ${encoding} is not known.`);
  // The host sends text as base64 if it has many characters that JSON escapes.
  const bytes = Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    throw new Error('it is not text.');
  }
}
