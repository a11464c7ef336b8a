// The layout of the page: sessions on the left, the conversation on the right, dialogs and notices above both.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

import type { ChatState } from '../ahp/types';
import { activityOf, oneLine } from '../format';
import type { Page } from '../page';
import { ConnectionLine, Refused } from './ConnectionState';
import { Conversation } from './Conversation';
import { ErrorBoundary } from './ErrorBoundary';
import { MenuIcon } from './Icons';
import { NewSession } from './NewSession';
import { Notices } from './Notices';
import { Sidebar } from './Sidebar';

export function App({ page, address }: { page: Page; address: URL }) {
  const menuOpen = useSignal(false);
  const selected = page.selected.value;
  const status = page.status.value;
  const blocked = status.kind === 'refused' || status.kind === 'incompatible';
  const title = (selected !== undefined && oneLine(page.session.value?.title)) || 'New session';

  const mark = tabMark(page.chat.value);

  useEffect(() => {
    document.title = selected === undefined ? 'Innkeeper' : `${mark}${title} · Innkeeper`;
  }, [title, selected, mark]);

  useEffect(() => {
    menuOpen.value = false;
  }, [selected]);

  return (
    <div class="frame">
      <a class="skip" href="#composer" onClick={focusComposer}>
        Skip to the message box
      </a>
      <ErrorBoundary of={page.rows.value} fallback={() => <NotShown />}>
        <Sidebar page={page} open={menuOpen} />
      </ErrorBoundary>
      <main class="main">
        <div class="topbar">
          <button
            type="button"
            class="icon-button"
            aria-label="Sessions"
            aria-expanded={menuOpen.value}
            onClick={() => (menuOpen.value = !menuOpen.value)}
          >
            <MenuIcon />
          </button>
          <span class="topbar-title">{title}</span>
        </div>
        <ConnectionLine page={page} />
        {blocked ? (
          <Refused page={page} address={address} />
        ) : selected === undefined ? (
          <NewSession page={page} />
        ) : (
          <ErrorBoundary key={selected} of={page.chat.value} fallback={() => <NotShown />}>
            <Conversation page={page} />
          </ErrorBoundary>
        )}
      </main>
      <Notices page={page} />
    </div>
  );
}

/** What the title of the browser tab says about the chat. */
function tabMark(chat: ChatState | undefined): string {
  if (!chat?.activeTurn) return '';
  return activityOf(chat.status) === 'waiting' ? 'Waiting for you · ' : '● ';
}

/** Stands for a list or conversation that threw; the rest of the page goes on. */
function NotShown() {
  return <p class="quiet center">The data of the host cannot be shown here. Reload the page to try again.</p>;
}

/** The part of the address after `#` names the session, so the link must not change it. */
function focusComposer(event: Event): void {
  event.preventDefault();
  document.getElementById('composer')?.focus();
}
