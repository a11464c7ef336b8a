// The files that go with the next message, and the names of those that went with a sent one.

import type { Page } from '../page';
import { CloseIcon } from './Icons';

/** The most names that a message shows. */
const SHOWN_NAMES = 20;

export function AttachedFiles({ page }: { page: Page }) {
  const session = page.selected.value;
  const attached = page.attachments.of(session);
  if (attached.length === 0) return null;
  return (
    <ul class="attached" aria-label="Attachments">
      {attached.map(({ id, attachment }) => (
        <li key={id}>
          <span class="attached-name">{attachment.label}</span>
          <button
            type="button"
            aria-label={`Remove ${attachment.label}`}
            onClick={() => {
              page.attachments.remove(session, id);
              document.getElementById('composer')?.focus();
            }}
          >
            <CloseIcon />
          </button>
        </li>
      ))}
    </ul>
  );
}

export function AttachmentNames({ names }: { names: readonly string[] }) {
  if (names.length === 0) return null;
  const more = names.length - SHOWN_NAMES;
  return (
    <ul class="attached" aria-label="Attachments">
      {names.slice(0, SHOWN_NAMES).map((name, index) => (
        // The list of a sent message does not change.
        <li key={index}>
          <span class="attached-name">{name}</span>
        </li>
      ))}
      {more > 0 && <li>{more} more</li>}
    </ul>
  );
}

/** Whether pasted or dropped data is a file. Programs also describe copied text as an image. */
export function filesOf(data: DataTransfer | null): File[] {
  const isRichText = data?.types.includes('text/plain') && data.types.includes('text/html');
  return data && !isRichText ? [...data.files] : [];
}
