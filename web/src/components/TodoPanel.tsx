// The agent's to-do list: one line above the composer, with the progress and the current item; the items on request.

import { useSignal } from '@preact/signals';

import { type TodoItem, todoList } from '../host-metadata';
import type { Page } from '../page';

const STATUS_WORDS: Record<TodoItem['status'], string> = { open: 'Open', current: 'In progress', done: 'Done' };

export function TodoPanel({ page }: { page: Page }) {
  const open = useSignal(false);
  const list = todoList(page.session.value, page.chat.value?.resource);
  // A finished list has no further use after its turn.
  if (!list || (list.done === list.total && !page.chat.value?.activeTurn)) return null;
  const { items, done, total } = list;
  const omitted = total - items.length;
  const current = items.find((item) => item.status === 'current') ?? items.find((item) => item.status === 'open');
  return (
    <details class="todo" open={open.value} onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>
        <span class="todo-count">
          To do: {done} of {total} done
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
