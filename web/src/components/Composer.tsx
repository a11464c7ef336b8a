// The input box. A message starts a turn; while one runs, it steers that turn or waits in the queue.

import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';

import { isOpenConfirmation } from '../ahp/confirmations';
import { isOpenRequest } from '../ahp/input-requests';
import type { Uri } from '../ahp/types';
import { unlistedHint } from '../model-setting';
import type { Page } from '../page';
import { isCommand } from '../page/commands';
import { NEW } from '../page/drafts';
import type { SendKind } from '../page/outgoing';
import { modeSetting } from '../permission-mode';
import { AttachedFiles, filesOf } from './AttachedFiles';
import { fitHeight } from './fit-height';
import { QueueIcon, SendIcon, SteerIcon } from './Icons';
import { ModelPicker } from './ModelPicker';
import { ModePicker } from './ModePicker';
import { StopButtons } from './StopButtons';
import { focusRequest } from './scroll';

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
  const running = page.running.value;
  const sending = page.outgoing.value.some((message) => message.session === selected && message.kind === 'turn');
  const reason = blocked ?? whyNot(page, sending);
  const dropping = useSignal(false);
  const needsText = text.trim() === '' && page.attachments.of(selected).length > 0;
  const models = page.models.value;
  const hint = models && unlistedHint(models);
  const waiting = awaitsAnswer(page);
  const sendable = reason === undefined && text.trim() !== '';

  useEffect(() => box.current?.focus({ preventScroll: true }), [selected]);
  useLayoutEffect(() => fitHeight(box.current), [text]);

  const attach = (event: Event, files: File[]) => {
    if (files.length === 0) return;
    event.preventDefault();
    void page.attachments.add(selected, files);
    box.current?.focus({ preventScroll: true });
  };
  const send = (kind: SendKind) => {
    const inTurn = isCommand(text) ? 'queued' : kind;
    if (sendable) void page.send(text, directory, running ? inTurn : 'turn');
    box.current?.focus({ preventScroll: true });
  };

  return (
    <form
      class={dropping.value ? 'composer is-dropping' : 'composer'}
      onDragOver={(event) => {
        if (!event.dataTransfer?.types.includes('Files')) return;
        event.preventDefault();
        dropping.value = true;
      }}
      onDragLeave={(event) => {
        if (!(event.relatedTarget instanceof Node && event.currentTarget.contains(event.relatedTarget))) dropping.value = false;
      }}
      onDrop={(event) => {
        dropping.value = false;
        attach(event, [...(event.dataTransfer?.files ?? [])]);
      }}
      onSubmit={(event) => {
        event.preventDefault();
        send('steering');
      }}
    >
      <AttachedFiles page={page} />
      <div class={running ? 'composer-box is-running' : 'composer-box'}>
        <textarea
          id="composer"
          ref={box}
          rows={1}
          value={text}
          placeholder={running ? 'Steer this turn, or queue…' : 'Write a message…'}
          aria-label="Message"
          aria-describedby="composer-hint"
          enterkeyhint="send"
          onPaste={(event) => attach(event, filesOf(event.clipboardData))}
          onInput={(event) => page.draft(selected, event.currentTarget.value)}
          onKeyDown={(event) => {
            // During composition, Enter belongs to the input method.
            if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
            event.preventDefault();
            send(event.altKey ? 'queued' : 'steering');
          }}
        />
        {running && <StopButtons page={page} />}
        {running ? (
          <>
            <button
              type="button"
              class="queue-button"
              title={reason ?? 'Queue: starts a turn of its own after this one (Alt+Enter)'}
              disabled={!sendable}
              onClick={() => send('queued')}
            >
              <QueueIcon />
              Queue
            </button>
            <button type="submit" class="send is-wide" title={reason ?? 'Steer: goes into the running turn (Enter)'} disabled={!sendable}>
              <SteerIcon />
              Steer
            </button>
          </>
        ) : (
          <button type="submit" class="send" aria-label="Send" title={reason} disabled={!sendable}>
            <SendIcon />
          </button>
        )}
      </div>
      <div class="composer-foot">
        <SessionMode page={page} />
        {models && <ModelPicker setting={models} onChange={(model) => page.chooseModel(model)} />}
        <p id="composer-hint" class="hint">
          {waiting ? (
            <>
              The agent waits for your answer.{' '}
              <button type="button" class="text-button" onClick={() => goToRequest(page)}>
                Go to the request
              </button>
            </>
          ) : text !== '' && reason !== undefined ? (
            `${reason}.`
          ) : needsText ? (
            'Write a message to send with the attachments.'
          ) : hint !== undefined ? (
            <span class="is-notable">{hint}</span>
          ) : (
            <Keys running={running} />
          )}
        </p>
      </div>
    </form>
  );
}

/** What the keys do now. */
function Keys({ running }: { running: boolean }) {
  if (!running) {
    return (
      <span class="keys">
        <kbd>Enter</kbd> sends, <kbd>Shift</kbd>+<kbd>Enter</kbd> starts a new line
      </span>
    );
  }
  return (
    <span class="keys">
      <kbd>Enter</kbd> steers the running turn, <kbd>Alt</kbd>+<kbd>Enter</kbd> queues for after it
    </span>
  );
}

/** The permission mode of the shown session or of the new one, if the host has modes. */
function SessionMode({ page }: { page: Page }) {
  const isNew = page.selected.value === undefined;
  const setting = isNew ? page.newModes.value : modeSetting(page.session.value?.config);
  if (!setting) return null;
  const online = page.status.value.kind === 'online';
  const blocked = !online ? 'Not connected to the host' : setting.changeable ? undefined : 'The host does not allow to change the mode';
  return <ModePicker setting={setting} blocked={blocked} onChange={(mode) => page.changeMode(mode)} />;
}

/** The request can have the focus after the conversation is shown again. */
function goToRequest(page: Page): void {
  if (!page.changesShown.value) {
    focusRequest();
    return;
  }
  page.changesShown.value = false;
  requestAnimationFrame(() => focusRequest());
}

function awaitsAnswer(page: Page): boolean {
  return page.chat.value?.activeTurn?.responseParts.some((part) => isOpenRequest(part) || isOpenConfirmation(part)) ?? false;
}

function whyNot(page: Page, sending: boolean): string | undefined {
  if (page.status.value.kind !== 'online') return 'Not connected to the host; your text is kept';
  if (page.attachments.reading.value > 0) return 'An attachment is being read';
  if (sending) return 'The last message is still on its way';
  if (page.selected.value === undefined && !page.root.value?.agents.length) return 'The host offers no agent yet';
  if (page.session.value?.lifecycle === 'failed') return 'This session could not be started';
  return undefined;
}
