// Sends the user's decision about a tool call, and says why that is not possible now.

import { useContext } from 'preact/hooks';

import type { ToolCall } from '../../ahp/types';
import type { Decision } from '../../page/answers';
import { PageContext } from '../page-context';

interface DecisionSender {
  /** Why no decision can be sent now. */
  blocked: string | undefined;
  decide(decision: Decision): void;
}

export function useDecision(call: ToolCall): DecisionSender {
  const page = useContext(PageContext);
  const online = page?.status.value.kind === 'online';
  const sending = page?.sentAnswers.value.some((sent) => sent.requestId === call.toolCallId && sent.questionId === undefined);
  const blocked = !online ? 'Not connected to the host' : sending ? 'Sending…' : undefined;
  return { blocked, decide: (decision) => blocked === undefined && page?.decide(call.toolCallId, decision) };
}
