// Tool calls of a running turn that wait for the user's permission.

import type { ActiveTurn, ResponsePart, ToolCall, ToolCallPart } from './types';

export function isOpenConfirmation(part: ResponsePart): part is ToolCallPart {
  return part?.kind === 'toolCall' && part.toolCall?.status === 'pending-confirmation';
}

/** The call with this id that waits for permission; undefined if there is none. */
export function openConfirmation(turn: ActiveTurn | undefined, toolCallId: string): ToolCall | undefined {
  return turn?.responseParts.filter(isOpenConfirmation).find((part) => part.toolCall.toolCallId === toolCallId)?.toolCall;
}
