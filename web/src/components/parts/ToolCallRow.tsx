// A tool call as one row: tool, target and outcome; input and result can be unfolded.

import { useContext, useMemo } from 'preact/hooks';

import type { OutputReference, ToolCall, ToolResultContent } from '../../ahp/types';
import { directoryPath, oneLine, plainText, readableInput } from '../../format';
import { isPlan } from '../../host-metadata';
import { inlineMarkdown } from '../../markdown/render';
import { errorMessage, outcomeOf, outcomeReason, outcomeWord } from '../../tool-outcome';
import { answeredElsewhere } from '../answered-elsewhere';
import { LongText } from '../LongText';
import { PageContext } from '../page-context';
import { Plan, planTitle } from './PlanCard';
import { isStoredOutput, StoredOutput } from './StoredOutput';

/** The characters of a message that fit into a row, with its Markdown. */
const MESSAGE_CHARACTERS = 400;

export function ToolCallRow({ call }: { call: ToolCall }) {
  const outcome = outcomeOf(call);
  const plan = isPlan(call);
  const message = oneLine((plan && planTitle(call)) || messageOf(call), MESSAGE_CHARACTERS);
  const html = useMemo(() => inlineMarkdown(message), [message]);
  const stored = typeof call.toolInput === 'object' ? call.toolInput : undefined;
  const input = typeof call.toolInput === 'string' ? call.toolInput : stored ? '' : call.partialInput;
  const result = resultText(call);
  const resources = (call.content ?? []).filter(isStoredResult);
  const head = (
    <>
      <span class={`tool-mark is-${outcome}`} aria-hidden="true" />
      <span class="fold-name">{oneLine(call.displayName) || oneLine(call.toolName)}</span>
      <span class="fold-preview" dangerouslySetInnerHTML={{ __html: html }} />
      <span class="tool-status">{outcomeWord(call)}</span>
      <Reason call={call} />
    </>
  );
  const look = { class: plan ? 'fold tool is-plan' : `fold tool is-${outcome}`, 'data-tool-status': call.status, 'data-outcome': outcome };
  if (!plan && !input && !stored && !result && resources.length === 0) {
    return (
      <div {...look}>
        <div class="summary">{head}</div>
      </div>
    );
  }
  return (
    <details {...look}>
      <summary>{head}</summary>
      <div class="tool-body">
        {plan && <Plan call={call} />}
        {!plan && input && <Section name="Input" text={readableInput(input)} />}
        {!plan && stored && <div class="tool-label">Input</div>}
        {!plan && stored && <StoredOutput output={stored} />}
        {result && <Section name={outcome === 'failed' ? 'Error' : 'Result'} text={result} />}
        {resources.length > 0 && <div class="tool-label">Complete result</div>}
        {resources.map((resource, index) => (
          <StoredOutput key={index} output={resource} />
        ))}
      </div>
    </details>
  );
}

/** A call that did not succeed is described by what it was to do. */
function messageOf(call: ToolCall): string {
  const outcome = outcomeOf(call);
  const planned = plainText(call.invocationMessage);
  const past = plainText(call.pastTenseMessage);
  return (outcome === 'denied' || outcome === 'skipped' ? planned || past : past || planned) || call.intention || '';
}

/** Who denied the call or why it failed, and who answered the request if it was not answered here. */
function Reason({ call }: { call: ToolCall }) {
  const page = useContext(PageContext);
  const reason = outcomeReason(call);
  const answer = page && answeredElsewhere(page, call.toolCallId);
  if (!reason && !answer) return null;
  const words = [reason, answer && [answer, oneLine(call.selectedOption?.label)].filter(Boolean).join(': ')];
  return <span class="tool-reason">{words.filter(Boolean).join(' · ')}</span>;
}

function Section({ name, text }: { name: string; text: string }) {
  return (
    <>
      <div class="tool-label">{name}</div>
      <pre tabIndex={0}>
        <LongText text={text} />
      </pre>
    </>
  );
}

function resultText(call: ToolCall): string {
  const parts = (call.content ?? []).map(contentText).filter((text) => text !== '');
  const error = errorMessage(call.error);
  if (error && !parts.includes(error)) parts.push(error);
  return parts.join('\n');
}

function isStoredResult(content: ToolResultContent): content is ToolResultContent & OutputReference {
  return content.type === 'resource' && isStoredOutput(content.uri);
}

function contentText(content: ToolResultContent): string {
  if (isStoredResult(content)) return '';
  switch (content.type) {
    case 'text':
      return content.text ?? '';
    case 'terminal':
      return content.result?.preview ?? content.title ?? '';
    case 'fileEdit': {
      const uri = content.after?.uri ?? content.before?.uri ?? '';
      return `${directoryPath(uri)}  +${content.diff?.added ?? 0} −${content.diff?.removed ?? 0}`;
    }
    default:
      return content.title ?? content.uri ?? `(${content.type})`;
  }
}
