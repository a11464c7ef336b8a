// Simple parts, and parts of unknown kinds: shown generically, never hidden.

import type { ResponsePart } from '../../ahp/types';
import { plainText } from '../../format';
import { MarkdownText } from './MarkdownText';

export function OtherPart({ part }: { part: ResponsePart }) {
  switch (part.kind) {
    case 'systemNotification':
      return (
        <div class="remark">
          <MarkdownText text={plainText(part.content)} streaming={false} />
        </div>
      );
    case 'inputRequest':
      return (
        <div class="remark">
          <strong>The agent asks: </strong>
          {[part.request.message, ...(part.request.questions ?? []).map((each) => each.message)].filter(Boolean).join(' ')}
          <span class="quiet"> ({part.response ?? 'not answered; this page cannot answer it yet'})</span>
        </div>
      );
    case 'contentRef':
      return <div class="remark quiet">Attached: {part.uri}</div>;
    default:
      return (
        <div class="remark quiet">A part of the kind “{String((part as { kind: unknown }).kind)}”, which this page does not know.</div>
      );
  }
}
