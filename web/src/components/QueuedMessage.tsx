// One waiting message in the queue, with everything that can be done with it.

import { useLayoutEffect, useRef } from 'preact/hooks';

import type { PendingKind, PendingMessage } from '../ahp/types';
import { oneLine } from '../format';
import type { Page } from '../page';
import { HERE } from '../page/waiting-messages';
import { fitHeight } from './fit-height';
import { CloseIcon, EditIcon, LowerIcon, UpIcon } from './Icons';
import { LongText } from './LongText';

/** The characters of a message that name it in the label of a button. */
const NAME_CHARACTERS = 40;

interface QueuedMessageProps {
  page: Page;
  kind: PendingKind;
  waiting: PendingMessage;
  held: boolean;
  isFirst?: boolean;
  isLast?: boolean;
  /** Moves the message by so many places; the named button keeps the focus. */
  onMove?(by: number, control: string): void;
}

export function QueuedMessage({ page, kind, waiting, held, isFirst = true, isLast = true, onMove }: QueuedMessageProps) {
  const { id, message } = waiting;
  const edited = page.waiting.edited.value;
  const text = typeof message?.text === 'string' ? message.text : '';
  const name = oneLine(text, NAME_CHARACTERS);
  const attachments = Array.isArray(message?.attachments) ? message.attachments.length : 0;
  const details = [whose(page, id), attachments > 0 ? `${attachments} attached` : ''].filter(Boolean).join(' · ');
  if (edited?.id === id) return <EditedText page={page} waiting={waiting} text={edited.text} held={held} />;
  return (
    <li
      class="queued"
      data-queued={id}
      onKeyDown={(event) => {
        const by = event.key === 'ArrowUp' ? -1 : event.key === 'ArrowDown' ? 1 : 0;
        if (!event.altKey || by === 0 || !onMove) return;
        event.preventDefault();
        const control = event.target instanceof HTMLElement ? event.target.dataset['control'] : undefined;
        onMove(by, control ?? 'up');
      }}
    >
      <div class="queued-text" tabIndex={0}>
        <LongText text={text} />
      </div>
      {details && <span class="queued-who">{details}</span>}
      <div class="queued-buttons">
        {kind === 'queued' && page.running.value && (
          <button
            type="button"
            class="small"
            data-control="steer"
            title="Goes into the running turn"
            aria-label={`Steer with “${name}”`}
            onClick={() => void page.waiting.steerWith(waiting)}
          >
            Steer
          </button>
        )}
        {kind === 'queued' && (
          <button
            type="button"
            class="small"
            data-control="send"
            title={page.running.value ? 'Stops the running turn and starts this message' : 'Starts this message, then the others'}
            aria-label={`Send “${name}” now`}
            onClick={() => void page.waiting.sendNow(id)}
          >
            Send now
          </button>
        )}
        {onMove && !(isFirst && isLast) && (
          <>
            <button
              type="button"
              class="icon-button"
              data-control="up"
              aria-label={`Move “${name}” up`}
              title="Move up (Alt+↑)"
              disabled={isFirst}
              onClick={() => onMove(-1, 'up')}
            >
              <UpIcon />
            </button>
            <button
              type="button"
              class="icon-button"
              data-control="down"
              aria-label={`Move “${name}” down`}
              title="Move down (Alt+↓)"
              disabled={isLast}
              onClick={() => onMove(1, 'down')}
            >
              <LowerIcon />
            </button>
          </>
        )}
        {kind === 'queued' && (
          <button
            type="button"
            class="icon-button"
            data-control="edit"
            aria-label={`Edit “${name}”`}
            title="Edit"
            onClick={() => startEditing(page, id, text)}
          >
            <EditIcon />
          </button>
        )}
        <button
          type="button"
          class="icon-button"
          data-control="remove"
          aria-label={`Remove “${name}”`}
          title="Remove"
          onClick={(event) => {
            focusNext(event.currentTarget);
            void page.waiting.remove(kind, id);
          }}
        >
          <CloseIcon />
        </button>
      </div>
    </li>
  );
}

function startEditing(page: Page, id: string, text: string): void {
  const chat = page.chat.value?.resource;
  if (chat !== undefined) page.waiting.edited.value = { chat, id, text };
}

interface EditedTextProps {
  page: Page;
  waiting: PendingMessage;
  text: string;
  held: boolean;
}

function EditedText({ page, waiting, text, held }: EditedTextProps) {
  const box = useRef<HTMLTextAreaElement>(null);
  const place = useRef<HTMLLIElement>(null);
  useLayoutEffect(() => box.current?.focus(), []);
  useLayoutEffect(() => fitHeight(box.current), [text]);
  const leave = () => {
    const { id } = waiting;
    page.waiting.edited.value = undefined;
    focusEntry(place.current?.parentElement, id);
  };
  const save = () => {
    if (text.trim() === '') return;
    leave();
    if (text !== waiting.message.text) void page.waiting.edit(waiting, text);
  };
  return (
    <li class="queued" ref={place}>
      <textarea
        ref={box}
        rows={1}
        value={text}
        aria-label="Queued message"
        onInput={(event) => {
          const edited = page.waiting.edited.value;
          if (edited) page.waiting.edited.value = { ...edited, text: event.currentTarget.value };
        }}
        onKeyDown={(event) => {
          if (event.isComposing) return;
          if (event.key === 'Escape') leave();
          if (event.key !== 'Enter' || event.shiftKey) return;
          event.preventDefault();
          save();
        }}
      />
      <div class="queued-buttons">
        <button type="button" class="small is-wanted" disabled={text.trim() === ''} onClick={save}>
          {held ? 'Save and continue' : 'Save'}
        </button>
        <button type="button" class="small" onClick={leave}>
          Cancel
        </button>
      </div>
    </li>
  );
}

/** After editing, the button that started it has the focus again. */
function focusEntry(list: HTMLElement | null | undefined, id: string): void {
  requestAnimationFrame(() => {
    const entry = [...(list?.querySelectorAll<HTMLElement>('[data-queued]') ?? [])].find((each) => each.dataset['queued'] === id);
    (entry?.querySelector<HTMLElement>('[data-control=edit]') ?? document.getElementById('composer'))?.focus();
  });
}

/** The message will disappear: the focus goes to a neighbour, or to the input box. */
function focusNext(button: HTMLElement): void {
  const entry = button.closest('[data-queued]');
  const next = entry?.nextElementSibling ?? entry?.previousElementSibling;
  (next?.querySelector<HTMLElement>('[data-control=remove]') ?? document.getElementById('composer'))?.focus();
}

/** Whose message it is, if that is known. */
function whose(page: Page, id: string): string {
  const owner = page.waiting.owners.value.get(id);
  if (owner === undefined) return '';
  if (owner === HERE) return 'Yours';
  const client = page.session.value?.activeClients?.find((each) => each.clientId === owner);
  return `From ${oneLine(client?.displayName) || 'another client'}`;
}
