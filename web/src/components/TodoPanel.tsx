// The agent's to-do list: one line above the composer, with the progress and the current item; the items on request.

import { useSignal } from '@preact/signals';

import { type TodoItem, type TodoList, todoList } from '../host-metadata';
import type { Page } from '../page';

const STATUS_WORDS: Record<TodoItem['status'], string> = { open: 'Open', current: 'In progress', done: 'Done' };

export function TodoPanel({ page }: { page: Page }) {
  const open = useSignal(false);
  const list = todoList(page.session.value, page.chat.value?.resource);
  // A finished list has no further use after its turn.
  if (!list || (isFinished(list) && !page.chat.value?.activeTurn)) return null;
  const { items, omitted } = list;
  const done = items.filter((item) => item.status === 'done').length;
  const current = items.find((item) => item.status === 'current') ?? items.find((item) => item.status === 'open');
  return (
    <details class="todo" open={open.value} onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>
        <span class="todo-count">
          To do: {done} of {items.length + omitted} done
        </span>
        <span class="todo-current">{current?.text}</span>
      </summary>
      <ul aria-label="To-do list">
        {items.map((item, index) => (
          <li key={index} class={`is-${item.status}`}>
            <span class="todo-mark" role="img" aria-label={STATUS_WORDS[item.status]} />
            <span>{item.text}</span>
          </li>
        ))}
        {omitted > 0 && <li class="quiet">{omitted.toLocaleString()} more are not shown.</li>}
      </ul>
    </details>
  );
}

function isFinished({ items, omitted }: TodoList): boolean {
  return omitted === 0 && items.every((item) => item.status === 'done');
}
