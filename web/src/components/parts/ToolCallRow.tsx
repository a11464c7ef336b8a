// A tool call as one row: tool, target and outcome; input and result can be unfolded.

import { useSignal } from '@preact/signals';
import { useContext, useMemo } from 'preact/hooks';

import type { FileEdit } from '../../ahp/changeset-types';
import type { OutputReference, ToolCall, ToolResultContent } from '../../ahp/types';
import { editsOfCall, fileUri, totals } from '../../edits/file-edits';
import { directoryPath, oneLine, plainText, readableInput } from '../../format';
import { isPlan, isStoppable } from '../../host-metadata';
import { inlineMarkdown } from '../../markdown/render';
import { errorMessage, outcomeOf, outcomeReason, outcomeWord } from '../../tool-outcome';
import { answeredElsewhere } from '../answered-elsewhere';
import { Counts, fileWords } from '../changes/Counts';
import { EditHead } from '../changes/EditHead';
import { DiffView } from '../diff/DiffView';
import { StopIcon } from '../Icons';
import { LongText } from '../LongText';
import { MoreList } from '../MoreList';
import { PageContext } from '../page-context';
import { Plan, planTitle } from './PlanCard';
import { isStoredOutput, StoredOutput } from './StoredOutput';

/** The characters of a message that fit into a row, with its Markdown. */
const MESSAGE_CHARACTERS = 400;
/** The changed files and the lines of their diffs that are shown at first, and with every further click. */
const SHOWN_EDITS = 5;
const SHOWN_LINES = 60;

export function ToolCallRow({ call }: { call: ToolCall }) {
  return (
    <div class="tool-line">
      <CallDetails call={call} />
      {call.status === 'running' && isStoppable(call) && <StopCall call={call} />}
    </div>
  );
}

/** Stops the command or the subagent; the turn goes on. */
function StopCall({ call }: { call: ToolCall }) {
  const page = useContext(PageContext);
  if (!page?.stopping.canStop.value) return null;
  const target = { toolCallId: call.toolCallId };
  const isStopping = page.stopping.isStopping(target);
  const what = oneLine(plainText(call.invocationMessage)) || oneLine(call.displayName);
  return (
    <button
      type="button"
      class="small tool-stop"
      title="Stop only this; the turn goes on"
      aria-label={`Stop: ${what}`}
      aria-disabled={isStopping}
      onClick={() => void page.stopping.stop(target)}
    >
      <StopIcon />
      {isStopping ? 'Stopping…' : 'Stop'}
    </button>
  );
}

function CallDetails({ call }: { call: ToolCall }) {
  const outcome = outcomeOf(call);
  const plan = isPlan(call);
  const message = oneLine((plan && planTitle(call)) || messageOf(call), MESSAGE_CHARACTERS);
  const html = useMemo(() => inlineMarkdown(message), [message]);
  const stored = typeof call.toolInput === 'object' ? call.toolInput : undefined;
  const input = typeof call.toolInput === 'string' ? call.toolInput : stored ? '' : call.partialInput;
  const result = resultText(call);
  const resources = (call.content ?? []).filter(isStoredResult);
  const edits = useMemo(() => editsOfCall(call), [call]);
  const sum = totals(edits);
  const open = useSignal(false);
  const head = (
    <>
      <span class={`tool-mark is-${outcome}`} aria-hidden="true" />
      <span class="fold-name">{oneLine(call.displayName) || oneLine(call.toolName)}</span>
      <span class="fold-preview" dangerouslySetInnerHTML={{ __html: html }} />
      {edits.length > 0 && !namesFile(message, edits) && <span class="tool-files">{filesLabel(edits)}</span>}
      {edits.length > 0 && <Counts added={sum.additions} removed={sum.deletions} />}
      <span class="tool-status">{outcomeWord(call)}</span>
      <Reason call={call} />
    </>
  );
  const look = { class: plan ? 'fold tool is-plan' : `fold tool is-${outcome}`, 'data-tool-status': call.status, 'data-outcome': outcome };
  if (!plan && !input && !stored && !result && resources.length === 0 && edits.length === 0) {
    return (
      <div {...look}>
        <div class="summary">{head}</div>
      </div>
    );
  }
  const raw = (
    <>
      {input && <Section name="Input" text={readableInput(input)} />}
      {stored && <div class="tool-label">Input</div>}
      {stored && <StoredOutput output={stored} />}
    </>
  );
  return (
    <details {...look} onToggle={(event) => (open.value = event.currentTarget.open)}>
      <summary>{head}</summary>
      <div class="tool-body">
        {plan && <Plan call={call} />}
        {open.value && edits.length > 0 && <Edits edits={edits} />}
        {!plan && edits.length === 0 && raw}
        {result && <Section name={outcome === 'failed' ? 'Error' : 'Result'} text={result} />}
        {resources.length > 0 && <div class="tool-label">Complete result</div>}
        {resources.map((resource, index) => (
          <StoredOutput key={index} output={resource} />
        ))}
        {edits.length > 0 && (input || stored) && (
          <details class="raw">
            <summary>Raw input</summary>
            {raw}
          </details>
        )}
      </div>
    </details>
  );
}

function namesFile(message: string, edits: readonly FileEdit[]): boolean {
  return edits.length === 1 && message.includes(nameOf(edits[0]!));
}

function filesLabel(edits: readonly FileEdit[]): string {
  return edits.length === 1 ? oneLine(nameOf(edits[0]!)) : fileWords(edits.length);
}

function nameOf(edit: FileEdit): string {
  return directoryPath(fileUri(edit)).split('/').at(-1) ?? '';
}

/** The files that the call changed, with their diffs. */
function Edits({ edits }: { edits: readonly FileEdit[] }) {
  const directories = useContext(PageContext)?.session.value?.workingDirectories;
  return (
    <MoreList items={edits} step={SHOWN_EDITS} what="files">
      {(edit, index) => (
        <div key={index} class="edit">
          <EditHead edit={edit} directories={directories} />
          <DiffView edit={edit} lines={SHOWN_LINES} />
        </div>
      )}
    </MoreList>
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
    case 'fileEdit':
      return '';
    default:
      return content.title ?? content.uri ?? `(${content.type})`;
  }
}
