// Output that the host stores outside of the conversation because of its size, read when the user asks for it.

import { useSignal } from '@preact/signals';
import { useContext } from 'preact/hooks';

import type { OutputReference } from '../../ahp/types';
import { dataSize, oneLine } from '../../format';
import { type ResourceContent, resourceText } from '../../resource-text';
import { LongText } from '../LongText';
import { PageContext } from '../page-context';
import { MarkdownText } from './MarkdownText';

type Content = { kind: 'hidden' } | { kind: 'loading' } | { kind: 'text'; text: string } | { kind: 'remark'; text: string };

/** Whether a URI names stored output. Others are shown, but not read. */
export function isStoredOutput(uri: unknown): boolean {
  return typeof uri === 'string' && uri.startsWith('innkeeper-output:');
}

export function StoredOutput({ output }: { output: OutputReference }) {
  const page = useContext(PageContext);
  const content = useSignal<Content>({ kind: 'hidden' });
  const show = async () => {
    content.value = { kind: 'loading' };
    content.value = await readContent(() => page?.readResource(output.uri));
  };
  switch (content.value.kind) {
    case 'text':
      return output.contentType === 'text/markdown' ? (
        <MarkdownText text={content.value.text} streaming={false} />
      ) : (
        <pre tabIndex={0}>
          <LongText text={content.value.text} />
        </pre>
      );
    case 'remark':
      return <div class="remark quiet">{content.value.text}</div>;
    default:
      return (
        <button type="button" class="more" disabled={content.value.kind === 'loading'} onClick={() => void show()}>
          Show {[dataSize(output.sizeHint), oneLine(output.contentType)].filter(Boolean).join(' of ') || 'content'}
        </button>
      );
  }
}

async function readContent(read: () => Promise<ResourceContent> | undefined): Promise<Content> {
  try {
    const result = await read();
    if (!result) return { kind: 'remark', text: 'Not connected to the host.' };
    return { kind: 'text', text: resourceText(result) };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { kind: 'remark', text: `The content cannot be shown: ${oneLine(reason)}` };
  }
}
