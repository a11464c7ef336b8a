// Simple parts, and parts of unknown kinds: shown generically, never hidden.

import type { ResponsePart } from '../../ahp/types';
import { oneLine, plainText } from '../../format';
import { MarkdownText } from './MarkdownText';
import { isStoredOutput, StoredOutput } from './StoredOutput';

export function OtherPart({ part }: { part: ResponsePart }) {
  switch (part.kind) {
    case 'systemNotification':
      return (
        <div class="remark">
          <MarkdownText text={plainText(part.content)} streaming={false} />
        </div>
      );
    case 'contentRef':
      if (isStoredOutput(part.uri)) return <StoredOutput output={part} />;
      return <div class="remark quiet">Attached: {oneLine(part.uri)}</div>;
    default:
      return (
        <div class="remark quiet">A part of the kind “{oneLine((part as { kind: unknown }).kind)}”, which this page does not know.</div>
      );
  }
}
