// The queue: messages of all clients that start a turn one after the other. They can be moved, edited, removed, sent now
// and moved into the running turn. After a stop or an error the queue is held until a client continues it.

import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';

import type { PendingMessage } from '../ahp/types';
import type { Page } from '../page';
import { MoreList } from './MoreList';
import { QueuedMessage } from './QueuedMessage';

/** The messages that are shown at first, and with every further click. */
const SHOWN_MESSAGES = 30;
/** Between two turns the host starts the next message within this time. */
const HELD_AFTER_MS = 400;

export function QueuePanel({ page }: { page: Page }) {
  const selected = page.selected.value;
  const queued = page.queued.value ?? [];
  // Without a turn, a steering message is the next one.
  const steering = page.running.value ? undefined : page.steering.value;
  const sending = page.outgoing.value.filter((each) => each.session === selected && each.kind === 'queued');
  if (queued.length === 0 && !steering && sending.length === 0) return null;
  return <Queue page={page} queued={queued} steering={steering} sending={sending.map((each) => each.message.text)} />;
}

interface QueueProps {
  page: Page;
  queued: readonly PendingMessage[];
  steering: PendingMessage | undefined;
  sending: readonly string[];
}

function Queue({ page, queued, steering, sending }: QueueProps) {
  const place = useRef<HTMLElement>(null);
  const running = page.running.value;
  const held = useHeld(!running && (queued.length > 0 || steering !== undefined));
  // Any new order continues a held queue, so until then the order is kept here.
  const heldOrder = useSignal<readonly string[] | undefined>(undefined);
  useEffect(() => {
    if (!held) heldOrder.value = undefined;
  }, [held]);
  const shown = inOrder(queued, heldOrder.value);
  const ids = shown.map((each) => each.id);
  const said = useSignal('');
  const focused = useRef<{ id: string; control: string }>(undefined);
  useLayoutEffect(() => {
    restoreFocus(place.current, focused.current);
    focused.current = undefined;
  }, [ids.join(' ')]);

  const move = (id: string, by: number, control: string) => {
    const from = ids.indexOf(id);
    const to = from + by;
    if (from < 0 || to < 0 || to >= ids.length) return;
    const order = ids.toSpliced(from, 1).toSpliced(to, 0, id);
    focused.current = { id, control };
    said.value = `Moved to place ${to + 1} of ${ids.length}.`;
    if (held) heldOrder.value = order;
    else void page.waiting.order(order);
  };

  return (
    <section class="panel queue" ref={place} aria-label="Queue">
      <div class="queue-head">
        <span class="panel-count">Queue: {(queued.length + (steering ? 1 : 0) + sending.length).toLocaleString()}</span>
        {held ? (
          <>
            <span class="queue-held">{heldWords(page)}</span>
            <button type="button" class="small is-wanted" onClick={() => void page.waiting.continue(ids)}>
              Continue
            </button>
          </>
        ) : (
          <span class="panel-preview">{running ? 'Each message starts a turn after the running one.' : ''}</span>
        )}
      </div>
      <ol>
        {steering && <QueuedMessage key={steering.id} page={page} kind="steering" waiting={steering} held={held} />}
        <MoreList items={shown} step={SHOWN_MESSAGES} what="messages">
          {(waiting, index) => (
            <QueuedMessage
              key={waiting.id}
              page={page}
              kind="queued"
              waiting={waiting}
              held={held}
              isFirst={index === 0}
              isLast={index === shown.length - 1}
              onMove={(by, control) => move(waiting.id, by, control)}
            />
          )}
        </MoreList>
        {sending.map((text, index) => (
          <li key={`sending ${index}`} class="queued is-pending">
            <div class="queued-text">{text}</div>
            <span class="queued-who">Sending…</span>
          </li>
        ))}
      </ol>
      <p class="visually-hidden" role="status">
        {said.value}
      </p>
    </section>
  );
}

/** True after the condition was true for a while: a queue is idle for a moment between two turns, too. */
function useHeld(idle: boolean): boolean {
  const held = useSignal(false);
  useEffect(() => {
    if (!idle) {
      held.value = false;
      return;
    }
    const timer = setTimeout(() => (held.value = true), HELD_AFTER_MS);
    return () => clearTimeout(timer);
  }, [idle]);
  return idle && held.value;
}

function heldWords(page: Page): string {
  switch (page.lastOutcome.value) {
    case 'cancelled':
      return 'Held after the stop.';
    case 'error':
      return 'Held after the error.';
    default:
      return 'Held.';
  }
}

/** The messages in this order, as far as it is known. */
function inOrder(queued: readonly PendingMessage[], order: readonly string[] | undefined): readonly PendingMessage[] {
  if (!order) return queued;
  const place = (each: PendingMessage) => {
    const index = order.indexOf(each.id);
    return index < 0 ? order.length : index;
  };
  return queued.toSorted((a, b) => place(a) - place(b));
}

/** A moved element loses the focus. At the end of the list, the button for this direction is disabled. */
function restoreFocus(panel: HTMLElement | null, wanted: { id: string; control: string } | undefined): void {
  if (!wanted) return;
  const entry = [...(panel?.querySelectorAll<HTMLElement>('[data-queued]') ?? [])].find((each) => each.dataset['queued'] === wanted.id);
  const named = entry?.querySelector<HTMLButtonElement>(`[data-control=${wanted.control}]`);
  const usable = named?.disabled ? entry?.querySelector<HTMLButtonElement>('[data-control]:enabled') : named;
  usable?.focus();
}
