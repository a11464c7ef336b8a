// Stops the running turn, and with a menu everything that runs in the chat. The menu lists what it stops.

import { useSignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';

import type { BackgroundWork } from '../ahp/types';
import { oneLine } from '../format';
import type { Page } from '../page';
import { LowerIcon, RestartIcon, StopIcon, UpIcon } from './Icons';
import { useFocusReturn } from './use-focus-return';

/** The running things that are listed. */
const LISTED = 8;
const LABEL_CHARACTERS = 80;

export function StopButtons({ page }: { page: Page }) {
  const open = useSignal(false);
  const more = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);
  const place = useRef<HTMLDivElement>(null);
  useFocusReturn(place, () => document.getElementById('composer'));
  const { stopping } = page;
  const hasMenu = stopping.canStop.value || stopping.canRestart.value;
  useLayoutEffect(() => {
    if (open.value) menu.current?.querySelector<HTMLElement>('button')?.focus();
  }, [open.value]);
  const close = () => {
    open.value = false;
    more.current?.focus();
  };
  const choose = (act: () => void) => {
    close();
    act();
  };
  return (
    <div
      class="stop-group"
      ref={place}
      onFocusOut={(event) => {
        if (!(event.relatedTarget instanceof Node && event.currentTarget.contains(event.relatedTarget))) open.value = false;
      }}
      onKeyDown={(event) => {
        if (event.key === 'Escape' && open.value) close();
      }}
    >
      <button type="button" class="stop" title="Stop the running turn. Background work goes on." onClick={() => page.stopTurn()}>
        <StopIcon />
        Stop
      </button>
      {hasMenu && (
        <button
          type="button"
          ref={more}
          class="stop-more"
          aria-label="More ways to stop"
          aria-expanded={open.value}
          onClick={() => (open.value = !open.value)}
        >
          {open.value ? <LowerIcon /> : <UpIcon />}
        </button>
      )}
      {open.value && (
        <div ref={menu} class="stop-menu" role="group" aria-label="More ways to stop">
          {stopping.canStop.value && (
            <>
              <Running page={page} />
              <button type="button" class="danger" onClick={() => choose(() => void stopping.stop('all'))}>
                <StopIcon /> Stop everything
              </button>
            </>
          )}
          {stopping.canRestart.value && (
            <>
              <p class="stop-note">
                If {page.agentName.value} hangs, restart its process. The turn can be resumed; background work is stopped.
              </p>
              <button type="button" class="plain" onClick={() => choose(() => void stopping.restart())}>
                <RestartIcon /> Restart {page.agentName.value}
              </button>
            </>
          )}
        </div>
      )}
    </div>
  );
}

/** What "Stop everything" stops now. */
function Running({ page }: { page: Page }) {
  const chat = page.chat.value;
  const work = chat?.backgroundWork ?? [];
  const hidden = work.length - LISTED;
  return (
    <>
      <p class="stop-note">Everything that runs in this chat:</p>
      <ul class="stop-list">
        {chat?.activeTurn && <li>The turn “{oneLine(chat.activeTurn.message?.text?.split('\n', 1)[0], LABEL_CHARACTERS)}”</li>}
        {work.slice(0, LISTED).map((each) => (
          <li key={each.id}>{workName(each)}</li>
        ))}
        {hidden > 0 && <li>{hidden.toLocaleString()} more</li>}
      </ul>
    </>
  );
}

function workName(work: BackgroundWork): string {
  const kind = work.kind === 'subagent' ? 'The subagent' : 'The command';
  return `${kind} “${oneLine(work.label, LABEL_CHARACTERS) || oneLine(work.command, LABEL_CHARACTERS)}”`;
}
