// The dialog that confirms the deletion of a session, which cannot be undone.

import { useRef } from 'preact/hooks';

import type { Page } from '../page';
import { TrashIcon } from './Icons';

export function DeleteSession({ page }: { page: Page }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const session = page.selected.value;
  if (session === undefined) return null;
  const close = () => dialog.current?.close();
  return (
    <>
      <button
        type="button"
        class="icon-button"
        aria-label="Delete this session"
        title="Delete this session"
        onClick={() => dialog.current?.showModal()}
      >
        <TrashIcon />
      </button>
      <dialog ref={dialog} class="dialog" aria-labelledby="delete-title">
        <h2 id="delete-title">Delete this session?</h2>
        <p>
          Deletes the conversation for everyone: its stored messages, and the agent's own transcript if Innkeeper started the conversation.
          A running answer is stopped. Files in the working directory are kept. This cannot be undone.
        </p>
        <div class="dialog-buttons">
          <button type="button" class="plain" autofocus onClick={close}>
            Keep it
          </button>
          <button
            type="button"
            class="danger"
            onClick={() => {
              close();
              void page.remove(session);
            }}
          >
            Delete
          </button>
        </div>
      </dialog>
    </>
  );
}
