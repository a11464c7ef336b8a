// One turn: the user's message, the parts of the answer in order, and the usage. A part that cannot be shown is
// replaced by its source.

import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';

import { isOpenConfirmation } from '../ahp/confirmations';
import { isOpenRequest } from '../ahp/input-requests';
import type { ActiveTurn, ResponsePart, ToolCall, Turn } from '../ahp/types';
import { duration, oneLine, sourceOf, usageText } from '../format';
import { discardedParts, isPlan, partId } from '../host-metadata';
import { TurnChanges } from './changes/TurnChanges';
import { ErrorBoundary } from './ErrorBoundary';
import { LongText } from './LongText';
import { AnsweredRequest } from './parts/AnsweredRequest';
import { ErrorCard } from './parts/ErrorCard';
import { MarkdownText } from './parts/MarkdownText';
import { OtherPart } from './parts/OtherPart';
import { PermissionCard } from './parts/PermissionCard';
import { PlanCard } from './parts/PlanCard';
import { QuestionForm } from './parts/QuestionForm';
import { Thinking } from './parts/Thinking';
import { ToolCallRow } from './parts/ToolCallRow';

/** The newest parts of a turn that are shown at first, and with every further click. */
const SHOWN_PARTS = 100;

interface TurnViewProps {
  turn: Turn | ActiveTurn;
  activity?: string | undefined;
}

export function TurnView({ turn, activity }: TurnViewProps) {
  // States are immutable, so a turn that is the same object is not rendered again.
  return useMemo(
    () => (
      <ErrorBoundary of={turn} fallback={() => <SourcePart value={turn} />}>
        <TurnContent turn={turn} activity={activity} />
      </ErrorBoundary>
    ),
    [turn, activity],
  );
}

function TurnContent({ turn, activity }: TurnViewProps) {
  const outcome = 'state' in turn ? turn.state : undefined;
  const running = outcome === undefined;
  const last = turn.responseParts.length - 1;
  const shownParts = useSignal(SHOWN_PARTS);
  const first = Math.max(0, turn.responseParts.length - shownParts.value);
  const discarded = discardedParts(turn.responseParts);
  return (
    <section class="turn" data-turn={outcome ?? 'running'}>
      <UserMessage text={turn.message?.text ?? ''} />
      {first > 0 && <ShowEarlier count={first} what="parts" onShow={() => (shownParts.value += SHOWN_PARTS)} />}
      {turn.responseParts.slice(first).map(
        (part, offset) =>
          !discarded.has(partId(part)) && (
            // Parts are only appended and replaced, so the index identifies them; an id from an agent may occur twice.
            <ErrorBoundary key={first + offset} of={part} fallback={() => <SourcePart value={part} />}>
              <PartView part={part} streaming={running && first + offset === last} open={running && isOpen(part)} />
            </ErrorBoundary>
          ),
      )}
      <ErrorBoundary of={turn} fallback={() => null}>
        <TurnChanges turn={turn} />
      </ErrorBoundary>
      {running && <Working activity={activity} quiet={turn.responseParts[last]?.kind === 'markdown' || turn.responseParts.some(isOpen)} />}
      {outcome === 'cancelled' && <p class="outcome">Stopped</p>}
      {!running && <Footer turn={turn as Turn} />}
    </section>
  );
}

export function UserMessage({ text, note }: { text: string; note?: string }) {
  return (
    <div class={note ? 'user is-pending' : 'user'}>
      <span class="visually-hidden">You said:</span>
      <div class="user-text">
        <LongText text={text} />
      </div>
      {note && <span class="user-note">{note}</span>}
    </div>
  );
}

function isOpen(part: ResponsePart): boolean {
  return isOpenRequest(part) || isOpenConfirmation(part);
}

interface PartViewProps {
  part: ResponsePart;
  streaming: boolean;
  /** Whether the part is a request that can be answered. */
  open: boolean;
}

function PartView({ part, streaming, open }: PartViewProps) {
  return useMemo(() => <PartContent part={part} streaming={streaming} open={open} />, [part, streaming, open]);
}

function PartContent({ part, streaming, open }: PartViewProps) {
  switch (part.kind) {
    case 'markdown':
      return <MarkdownText text={part.content} streaming={streaming} />;
    case 'reasoning':
      return <Thinking text={part.content} streaming={streaming} />;
    case 'toolCall':
      return open ? <Confirmation key={part.toolCall.toolCallId} call={part.toolCall} /> : <ToolCallRow call={part.toolCall} />;
    case 'inputRequest':
      return open ? <QuestionForm key={part.request.id} request={part.request} /> : <AnsweredRequest part={part} />;
    case 'error':
      return <ErrorCard title="The answer ended in an error" error={part.error} />;
    default:
      return <OtherPart part={part} />;
  }
}

function Confirmation({ call }: { call: ToolCall }) {
  return isPlan(call) ? <PlanCard call={call} /> : <PermissionCard call={call} />;
}

/** Keeps its place while it has nothing to say, so that the text above it does not move. */
function Working({ activity, quiet }: { activity: string | undefined; quiet: boolean }) {
  const words = oneLine(activity) || (quiet ? '' : 'Working…');
  return (
    <p class="working">
      {words && (
        <>
          <span class="pulse" aria-hidden="true">
            <i />
            <i />
            <i />
          </span>
          {words}
        </>
      )}
    </p>
  );
}

function Footer({ turn }: { turn: Turn }) {
  const words = [turn.usage && usageText(turn.usage), duration(turn.duration)];
  const text = words.filter(Boolean).join(' · ');
  return text === '' ? null : <p class="usage">{text}</p>;
}

/** A part or turn that could not be shown, as it was received. */
function SourcePart({ value }: { value: unknown }) {
  return (
    <div class="remark">
      <span class="quiet">This part cannot be shown; its source:</span>
      <div class="source">
        <LongText text={sourceOf(value)} />
      </div>
    </div>
  );
}

export function ShowEarlier({ count, what, onShow }: { count: number; what: string; onShow: () => void }) {
  return (
    <button type="button" class="more" onClick={onShow}>
      Show earlier {what} ({count.toLocaleString()} are hidden)
    </button>
  );
}
