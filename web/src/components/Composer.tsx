// The input box. Typing is always possible; sending waits until the running turn has ended.

import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';

import { isOpenRequest } from '../ahp/input-requests';
import type { Uri } from '../ahp/types';
import type { Page } from '../page';
import { NEW } from '../page/drafts';
import { SendIcon, StopIcon } from './Icons';

interface ComposerProps {
  page: Page;
  directory?: Uri | undefined;
  /** Why a message cannot be sent now, for reasons outside of the input box. */
  blocked?: string | undefined;
}

export function Composer({ page, directory, blocked }: ComposerProps) {
  const box = useRef<HTMLTextAreaElement>(null);
  const selected = page.selected.value;
  const text = page.drafts.value.get(selected ?? NEW) ?? '';
  const running = page.chat.value?.activeTurn !== undefined;
  const sending = page.outgoing.value.some((message) => message.session === selected);
  const reason = blocked ?? whyNot(page, running, sending);
  const sendable = reason === undefined && text.trim() !== '';

  useEffect(() => box.current?.focus({ preventScroll: true }), [selected]);
  useLayoutEffect(() => fitHeight(box.current), [text]);

  const send = () => {
    if (sendable) void page.send(text, directory);
  };

  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <div class="composer-box">
        <textarea
          id="composer"
          ref={box}
          rows={1}
          value={text}
          placeholder="Write a message…"
          aria-label="Message"
          aria-describedby="composer-hint"
          enterkeyhint="send"
          onInput={(event) => page.draft(selected, event.currentTarget.value)}
          onKeyDown={(event) => {
            // During composition, Enter belongs to the input method.
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            send();
          }}
        />
        {running && (
          <button type="button" class="stop" onClick={() => page.stopTurn()}>
            <StopIcon />
            Stop
          </button>
        )}
        <button type="submit" class="send" aria-label="Send" title={reason} disabled={!sendable}>
          <SendIcon />
        </button>
      </div>
      <p id="composer-hint" class="hint">
        {text !== '' && reason !== undefined ? (
          `${reason}.`
        ) : (
          <span class="keys">
            <kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> starts a new line
          </span>
        )}
      </p>
    </form>
  );
}

function whyNot(page: Page, running: boolean, sending: boolean): string | undefined {
  if (page.status.value.kind !== 'online') return 'Not connected to the host; your text is kept';
  if (running && page.chat.value?.activeTurn?.responseParts.some(isOpenRequest)) return 'Answer the question first, or stop the turn';
  if (running) return 'Wait for the answer to end, or stop it';
  if (sending) return 'The last message is still on its way';
  if (page.selected.value === undefined && !page.root.value?.agents.length) return 'The host offers no agent yet';
  if (page.session.value?.lifecycle === 'failed') return 'This session could not be started';
  return undefined;
}

/** Grows the box with its text, up to the maximum in the style sheet. */
function fitHeight(box: HTMLTextAreaElement | null): void {
  if (!box) return;
  box.style.height = 'auto';
  box.style.height = `${box.scrollHeight}px`;
}
