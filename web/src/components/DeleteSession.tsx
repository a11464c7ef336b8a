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
          Its conversation is removed from the host for everybody, and a running answer is stopped. Files in the working directory stay as
          they are.
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
