// One session: its head, its turns, and the composer. Follows the newest text unless the reader scrolled away.

import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';

import { isOpenConfirmation } from '../ahp/confirmations';
import type { ChatState, SessionState } from '../ahp/types';
import { activityOf, directoryPath, oneLine, plainText } from '../format';
import type { Page } from '../page';
import { attachmentNames } from '../page/attachments';
import { renderBudget } from '../render-budget';
import { sessionUsageText } from '../usage-text';
import { BackgroundPanel } from './BackgroundPanel';
import { Composer } from './Composer';
import { ChangesButton, ChangesView } from './changes/ChangesView';
import { copyCode } from './copy-code';
import { DeleteSession } from './DeleteSession';
import { ErrorBoundary } from './ErrorBoundary';
import { DownIcon, FolderIcon } from './Icons';
import { PageContext } from './page-context';
import { ErrorCard } from './parts/ErrorCard';
import { QueuePanel } from './QueuePanel';
import { SteeringMessages } from './SteeringMessages';
import { type ShownRequest, scrollOnDemand, scrollToNewest } from './scroll';
import { TodoPanel } from './TodoPanel';
import { ShowEarlier, TurnView, UserMessage } from './TurnView';

/** A reader closer than this to the end sees new text scroll into view. */
const NEAR_END_PX = 80;

/** The newest turns that are shown at first, and with every further click. */
const SHOWN_TURNS = 30;
/** Turns that are rendered in one task when a conversation is opened, the newest first. */
const TURNS_PER_TASK = 2;

/** Elements that open something below themselves. */
const OPENERS = 'summary, .file-toggle, .diff-gap, .more, .small';

/** The session's directory, and what it used so far. */
function Subtitle({ session }: { session: SessionState | undefined }) {
  const directory = session?.workingDirectories?.[0];
  const path = directory ? oneLine(directoryPath(directory)) : '';
  const used = sessionUsageText(session);
  if (!path && !used) return null;
  return (
    <p class="quiet">
      {path && (
        <>
          <FolderIcon />
          <span class="head-path" title={path}>
            <bdi>{path}</bdi>
          </span>
        </>
      )}
      {used && (
        <span class="head-usage" title="What this session used so far">
          {used}
        </span>
      )}
    </p>
  );
}

export function Conversation({ page }: { page: Page }) {
  const session = page.session.value;
  const chat = page.chat.value;
  const selected = page.selected.value;
  const scroller = useRef<HTMLDivElement>(null);
  const turns = useRef<HTMLDivElement>(null);
  const following = useSignal(true);
  const changesShown = page.changesShown.value;
  const outgoing = page.outgoing.value.filter((message) => message.session === selected && message.kind !== 'queued');
  const newTurns = outgoing.filter((message) => message.kind === 'turn');

  const shownRequest = useRef<ShownRequest>(undefined);
  /** Where the page itself scrolled to, which says nothing about the reader. */
  const ownPosition = useRef<number>(undefined);
  const follow = () => {
    const element = scroller.current;
    if (!element) return;
    shownRequest.current = scrollToNewest(element, shownRequest.current);
    ownPosition.current = element.scrollTop;
  };
  const toNewest = () => {
    if (scroller.current) shownRequest.current = scrollOnDemand(scroller.current);
  };
  useLayoutEffect(() => {
    if (following.peek()) follow();
  }, [chat, outgoing.length]);
  useLayoutEffect(() => {
    // Parts that waited for the render budget appear later, and the space for the conversation changes.
    const observer = new ResizeObserver(() => {
      if (following.peek()) follow();
      else if (scroller.current && isNearEnd(scroller.current)) following.value = true;
    });
    for (const element of [turns.current, scroller.current]) if (element) observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    if (outgoing.length === 0) return;
    following.value = true;
    page.changesShown.value = false;
  }, [outgoing.length]);

  return (
    <div class="conversation">
      <header class="head">
        <div class="head-text">
          <h1>{oneLine(session?.title) || 'New session'}</h1>
          <Subtitle session={session} />
        </div>
        <ChangesButton page={page} />
        <DeleteSession page={page} />
      </header>
      <div class="stage">
        <div
          class="scroller"
          ref={scroller}
          inert={changesShown}
          onClick={(event) => {
            copyCode(event);
            // A reader who opens something wants to see it, not the end of the conversation.
            if (event.target instanceof Element && event.target.closest(OPENERS)) following.value = false;
          }}
          onScroll={(event) => {
            const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
            following.value = scrollTop === ownPosition.current || scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
          }}
        >
          <div class="turns" ref={turns} role="log" aria-label="Conversation" aria-busy={chat?.activeTurn !== undefined}>
            {chat === undefined && outgoing.length === 0 && <p class="quiet center">Opening the session…</p>}
            {chat && (
              <PageContext.Provider value={page}>
                <Turns chat={chat} />
              </PageContext.Provider>
            )}
            <ErrorBoundary of={page.steering.value} fallback={() => null}>
              <SteeringMessages page={page} />
            </ErrorBoundary>
            {newTurns.map((message) => (
              <UserMessage key={message.id} text={message.message.text} attachments={attachmentNames(message.message)} note="Sending…" />
            ))}
            {session?.lifecycle === 'failed' && (
              <ErrorCard
                title="The session could not be started"
                error={session.creationError ?? { errorType: 'unknown', message: 'The host gave no reason.' }}
              />
            )}
          </div>
        </div>
        {changesShown && <ChangesView page={page} />}
      </div>
      <div class="to-end-place">
        {!following.value && !changesShown && (
          <button type="button" class="to-end" onClick={toNewest}>
            <DownIcon /> {chat && activityOf(chat.status) === 'waiting' ? 'Waiting for you' : 'Newest'}
          </button>
        )}
      </div>
      <p class="visually-hidden" role="status">
        {announcement(chat)}
      </p>
      <TodoPanel page={page} />
      <ErrorBoundary of={page.backgroundWork.value} fallback={() => null}>
        <BackgroundPanel page={page} />
      </ErrorBoundary>
      <ErrorBoundary of={page.queued.value} fallback={() => null}>
        <QueuePanel page={page} />
      </ErrorBoundary>
      <Composer page={page} />
    </div>
  );
}

function isNearEnd({ scrollHeight, scrollTop, clientHeight }: HTMLElement): boolean {
  return scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
}

function Turns({ chat }: { chat: ChatState }) {
  const active = chat.activeTurn;
  const shown = useSignal(SHOWN_TURNS);
  const rendered = useSignal(TURNS_PER_TASK);
  const incomplete = rendered.value < shown.value;
  useEffect(() => (incomplete ? renderBudget.wait(() => (rendered.value += TURNS_PER_TASK)) : undefined));
  const hidden = Math.max(0, chat.turns.length - Math.min(shown.value, rendered.value));
  return (
    <>
      {hidden > 0 && !incomplete && <ShowEarlier count={hidden} what="turns" onShow={() => (shown.value += SHOWN_TURNS)} />}
      {hidden === 0 && chat.turnsNextCursor !== undefined && <p class="quiet center">Older turns are not shown.</p>}
      {chat.turns.length === 0 && !active && <p class="quiet center">Nothing has been said yet.</p>}
      {[...chat.turns.slice(hidden), ...(active ? [active] : [])].map((turn) => (
        // One list, so that the elements of a turn stay when it ends.
        <TurnView key={turn.id} turn={turn} activity={turn === active ? chat.activity : undefined} />
      ))}
    </>
  );
}

/** The announcement of a turn's progress for screen readers. The streamed text itself is not announced. */
function announcement(chat: ChatState | undefined): string {
  if (!chat) return '';
  if (activityOf(chat.status) === 'waiting') return ['The agent is waiting for you.', openTitle(chat)].filter(Boolean).join(' ');
  if (chat.activeTurn) return 'The agent is answering.';
  switch (chat.turns.at(-1)?.state) {
    case 'complete':
      return 'The answer is complete.';
    case 'cancelled':
      return 'The answer was stopped.';
    case 'error':
      return 'The answer ended in an error.';
    default:
      return '';
  }
}

/** The title of the first permission request that is open. */
function openTitle(chat: ChatState): string {
  const call = chat.activeTurn?.responseParts.find(isOpenConfirmation)?.toolCall;
  return call ? oneLine(plainText(call.confirmationTitle)) : '';
}
