// A tool call as one row: tool, target and outcome; input and result can be unfolded.

import { useMemo } from 'preact/hooks';

import type { OutputReference, ToolCall, ToolResultContent } from '../../ahp/types';
import { directoryPath, oneLine, plainText, readableInput } from '../../format';
import { inlineMarkdown } from '../../markdown/render';
import { LongText } from '../LongText';
import { isStoredOutput, StoredOutput } from './StoredOutput';

/** The characters of a message that fit into a row, with its Markdown. */
const MESSAGE_CHARACTERS = 400;

type Look = 'running' | 'waiting' | 'done' | 'failed' | 'cancelled';

export function ToolCallRow({ call }: { call: ToolCall }) {
  const look = lookOf(call);
  const message = oneLine(plainText(call.pastTenseMessage ?? call.invocationMessage) || call.intention, MESSAGE_CHARACTERS);
  const html = useMemo(() => inlineMarkdown(message), [message]);
  const stored = typeof call.toolInput === 'object' ? call.toolInput : undefined;
  const input = typeof call.toolInput === 'string' ? call.toolInput : stored ? '' : call.partialInput;
  const result = resultText(call);
  const resources = (call.content ?? []).filter(isStoredResult);
  const head = (
    <>
      <span class={`tool-mark is-${look}`} aria-hidden="true" />
      <span class="fold-name">{oneLine(call.displayName) || oneLine(call.toolName)}</span>
      <span class="fold-preview" dangerouslySetInnerHTML={{ __html: html }} />
      <span class="tool-status">{statusWord(call, look)}</span>
    </>
  );
  if (!input && !stored && !result && resources.length === 0) {
    return (
      <div class="fold tool" data-tool-status={call.status}>
        <div class="summary">{head}</div>
      </div>
    );
  }
  return (
    <details class="fold tool" data-tool-status={call.status}>
      <summary>{head}</summary>
      <div class="tool-body">
        {input && <Section name="Input" text={readableInput(input)} />}
        {stored && <div class="tool-label">Input</div>}
        {stored && <StoredOutput output={stored} />}
        {result && <Section name={look === 'failed' ? 'Error' : 'Result'} text={result} />}
        {resources.length > 0 && <div class="tool-label">Complete result</div>}
        {resources.map((resource, index) => (
          <StoredOutput key={index} output={resource} />
        ))}
      </div>
    </details>
  );
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

function lookOf(call: ToolCall): Look {
  switch (call.status) {
    case 'completed':
      return call.success ? 'done' : 'failed';
    case 'cancelled':
      return 'cancelled';
    case 'pending-confirmation':
    case 'pending-result-confirmation':
    case 'auth-required':
      return 'waiting';
    default:
      return 'running';
  }
}

function statusWord(call: ToolCall, look: Look): string {
  switch (look) {
    case 'running':
      return 'running';
    case 'waiting':
      return call.status === 'auth-required' ? 'needs a sign-in' : 'waits for approval';
    case 'failed':
      return 'failed';
    case 'cancelled':
      return call.reason === 'denied' || call.reason === 'result-denied' ? 'denied' : 'skipped';
    case 'done':
      return 'done';
  }
}

function resultText(call: ToolCall): string {
  const parts = (call.content ?? []).map(contentText).filter((text) => text !== '');
  const error = errorText(call.error);
  if (error && !parts.includes(error)) parts.push(error);
  const why = plainText(call.reasonMessage);
  if (why) parts.push(why);
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

function errorText(error: unknown): string {
  if (typeof error === 'string') return error;
  if (typeof error !== 'object' || error === null) return '';
  const { message } = error as { message?: unknown };
  return typeof message === 'string' ? message : JSON.stringify(error);
}
