// A dialog that asks before something is done. It is open as long as it is rendered.

import { useId, useLayoutEffect, useRef } from 'preact/hooks';

interface ConfirmDialogProps {
  title: string;
  text: string;
  /** The label of the button that does it. */
  action: string;
  onConfirm(): void;
  onClose(): void;
}

export function ConfirmDialog({ title, text, action, onConfirm, onClose }: ConfirmDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const titleId = useId();
  useLayoutEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby={titleId} onClose={onClose}>
      <h2 id={titleId}>{title}</h2>
      <p>{text}</p>
      <div class="dialog-buttons">
        <button type="button" class="plain" autofocus onClick={() => dialog.current?.close()}>
          Cancel
        </button>
        <button
          type="button"
          class="danger"
          onClick={() => {
            dialog.current?.close();
            onConfirm();
          }}
        >
          {action}
        </button>
      </div>
    </dialog>
  );
}
