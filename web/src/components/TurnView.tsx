// One turn: the user's message, the parts of the answer in order, and the usage. A part that cannot be shown is
// replaced by its source.

import { useSignal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useContext, useMemo } from 'preact/hooks';

import { isOpenConfirmation } from '../ahp/confirmations';
import { isOpenRequest } from '../ahp/input-requests';
import type { ActiveTurn, ErrorPart, ResponsePart, ToolCall, Turn } from '../ahp/types';
import { duration, oneLine, plainText, sourceOf } from '../format';
import { discardedParts, isPlan, partId, steeringOf } from '../host-metadata';
import { attachmentNames } from '../page/attachments';
import { usageText } from '../usage-text';
import { AttachmentNames } from './AttachedFiles';
import { TurnChanges } from './changes/TurnChanges';
import { ErrorBoundary } from './ErrorBoundary';
import { LongText } from './LongText';
import { PageContext } from './page-context';
import { AnsweredRequest } from './parts/AnsweredRequest';
import { ErrorActions } from './parts/ErrorActions';
import { ErrorCard } from './parts/ErrorCard';
import { MarkdownText } from './parts/MarkdownText';
import { OtherPart } from './parts/OtherPart';
import { PermissionCard } from './parts/PermissionCard';
import { PlanCard } from './parts/PlanCard';
import { QuestionForm } from './parts/QuestionForm';
import { Thinking } from './parts/Thinking';
import { ToolCallRow } from './parts/ToolCallRow';
import { WorkMessage } from './parts/WorkMessage';

/** The newest parts of a turn that are shown at first, and with every further click. */
const SHOWN_PARTS = 100;
/** The activity of a turn whose agent may hang. */
export const NO_PROGRESS = /^No output from Claude\b/;

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
      <TurnMessage turn={turn} />
      {first > 0 && <ShowEarlier count={first} what="parts" onShow={() => (shownParts.value += SHOWN_PARTS)} />}
      {turn.responseParts.slice(first).map(
        (part, offset) =>
          !discarded.has(partId(part)) && (
            // Parts are only appended and replaced, so the index identifies them; an id from an agent may occur twice.
            <ErrorBoundary key={first + offset} of={part} fallback={() => <SourcePart value={part} />}>
              <PartView part={part} turn={turn.id} streaming={running && first + offset === last} open={running && isOpen(part)} />
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

/** What started the turn: a user's message, or something that happened in the background. */
function TurnMessage({ turn }: { turn: Turn | ActiveTurn }) {
  const { message } = turn;
  if (message?.origin?.kind === 'systemNotification') return <WorkMessage message={message} />;
  return <UserMessage text={message?.text ?? ''} attachments={attachmentNames(message)} />;
}

interface UserMessageProps {
  text: string;
  /** What happens with a message that is not part of the conversation yet. */
  note?: string;
  /** What is special about a message that is part of the conversation. */
  remark?: string;
  /** The names of the attachments. */
  attachments?: readonly string[];
  children?: ComponentChildren;
}

export function UserMessage({ text, note, remark, attachments = [], children }: UserMessageProps) {
  return (
    <div class={note ? 'user is-pending' : 'user'}>
      <span class="visually-hidden">You said:</span>
      <div class="user-text">
        <LongText text={text} />
      </div>
      <AttachmentNames names={attachments} />
      {(note || remark || children) && (
        <span class="user-note">
          {note ?? remark}
          {children}
        </span>
      )}
    </div>
  );
}

function isOpen(part: ResponsePart): boolean {
  return isOpenRequest(part) || isOpenConfirmation(part);
}

interface PartViewProps {
  part: ResponsePart;
  /** The id of the turn. */
  turn: string;
  streaming: boolean;
  /** Whether the part is a request that can be answered. */
  open: boolean;
}

function PartView({ part, turn, streaming, open }: PartViewProps) {
  return useMemo(() => <PartContent part={part} turn={turn} streaming={streaming} open={open} />, [part, turn, streaming, open]);
}

function PartContent({ part, turn, streaming, open }: PartViewProps) {
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
      return <TurnError part={part} turn={turn} />;
    default:
      return steeringOf(part) ? <TakenMessage part={part} /> : <OtherPart part={part} />;
  }
}

/** Only the newest error can be acted on: after an earlier one the turn was resumed, or another turn followed. */
function TurnError({ part, turn }: { part: ErrorPart; turn: string }) {
  const page = useContext(PageContext);
  const isNewest = page?.failedTurn.value === turn && page.chat.peek()?.turns.at(-1)?.responseParts.at(-1) === part;
  return (
    <ErrorCard title="The answer ended in an error" error={part.error}>
      {page && isNewest && <ErrorActions page={page} part={part} />}
    </ErrorCard>
  );
}

/** A message that the agent has taken into the turn. */
function TakenMessage({ part }: { part: ResponsePart }) {
  const { attachments = 0 } = steeringOf(part) ?? {};
  const remark = attachments > 0 ? `Steered, with ${attachments} attached` : 'Steered';
  return <UserMessage text={part.kind === 'systemNotification' ? plainText(part.content) : ''} remark={remark} />;
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
          {NO_PROGRESS.test(words) && <RestartAgent />}
        </>
      )}
    </p>
  );
}

function RestartAgent() {
  const page = useContext(PageContext);
  if (!page?.stopping.canRestart.value) return null;
  const { isRestarting } = page.stopping;
  return (
    <button type="button" class="small" aria-disabled={isRestarting} onClick={() => void page.stopping.restart()}>
      {isRestarting ? 'Restarting…' : `Restart ${page.agentName.value}`}
    </button>
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
