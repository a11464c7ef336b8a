// One turn: the user's message, the parts of the answer in order, and the usage.

import { useMemo } from 'preact/hooks';

import type { ActiveTurn, ResponsePart, Turn } from '../ahp/types';
import { duration, usageText } from '../format';
import { ErrorCard } from './parts/ErrorCard';
import { MarkdownText } from './parts/MarkdownText';
import { OtherPart } from './parts/OtherPart';
import { Thinking } from './parts/Thinking';
import { ToolCallRow } from './parts/ToolCallRow';

interface TurnViewProps {
  turn: Turn | ActiveTurn;
  activity?: string | undefined;
}

export function TurnView({ turn, activity }: TurnViewProps) {
  // States are immutable, so a turn that is the same object is not rendered again.
  return useMemo(() => <TurnContent turn={turn} activity={activity} />, [turn, activity]);
}

function TurnContent({ turn, activity }: TurnViewProps) {
  const outcome = 'state' in turn ? turn.state : undefined;
  const running = outcome === undefined;
  const last = turn.responseParts.length - 1;
  return (
    <section class="turn" data-turn={outcome ?? 'running'}>
      <UserMessage text={turn.message?.text ?? ''} />
      {turn.responseParts.map((part, index) => (
        <PartView key={partKey(part, index)} part={part} streaming={running && index === last} />
      ))}
      {running && <Working activity={activity} quiet={turn.responseParts[last]?.kind === 'markdown'} />}
      {outcome === 'cancelled' && <p class="outcome">Stopped</p>}
      {!running && <Footer turn={turn as Turn} />}
    </section>
  );
}

export function UserMessage({ text, note }: { text: string; note?: string }) {
  return (
    <div class={note ? 'user is-pending' : 'user'}>
      <span class="visually-hidden">You said:</span>
      <div class="user-text">{text}</div>
      {note && <span class="user-note">{note}</span>}
    </div>
  );
}

function PartView({ part, streaming }: { part: ResponsePart; streaming: boolean }) {
  switch (part.kind) {
    case 'markdown':
      return <MarkdownText text={part.content} streaming={streaming} />;
    case 'reasoning':
      return <Thinking text={part.content} streaming={streaming} />;
    case 'toolCall':
      return <ToolCallRow call={part.toolCall} />;
    case 'error':
      return <ErrorCard title="The answer ended in an error" error={part.error} />;
    default:
      return <OtherPart part={part} />;
  }
}

function Working({ activity, quiet }: { activity: string | undefined; quiet: boolean }) {
  if (quiet && !activity) return null;
  return (
    <p class="working">
      <span class="pulse" aria-hidden="true">
        <i />
        <i />
        <i />
      </span>
      {activity || 'Working…'}
    </p>
  );
}

function Footer({ turn }: { turn: Turn }) {
  const words = [turn.usage && usageText(turn.usage), turn.duration === undefined ? '' : duration(turn.duration)];
  const text = words.filter(Boolean).join(' · ');
  return text === '' ? null : <p class="usage">{text}</p>;
}

function partKey(part: ResponsePart, index: number): string {
  if (part.kind === 'toolCall') return `tool:${part.toolCall.toolCallId}`;
  return 'id' in part ? `${part.kind}:${part.id}` : `${part.kind}:${index}`;
}
