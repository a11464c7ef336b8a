// The input requests of a running turn: asked, answered in drafts that every client sees, completed once.
// An action for a request that is not open leaves the turn unchanged.

import type { Action, ActiveTurn, Answer, Answers, InputRequest, InputRequestPart, ResponsePart } from './types';

export function isOpenRequest(part: ResponsePart): part is InputRequestPart {
  return part?.kind === 'inputRequest' && part.response === undefined;
}

/** The open request with this id; undefined if there is none. */
export function openRequest(turn: ActiveTurn | undefined, id: string): InputRequest | undefined {
  const part = turn?.responseParts[openIndex(turn, id)];
  return part?.kind === 'inputRequest' ? part.request : undefined;
}

/** Returns the turn after the action. */
export function reduceRequests(turn: ActiveTurn, action: Action): ActiveTurn {
  if (action.type === 'chat/inputRequested') return asked(turn, action['request'] as InputRequest | undefined);
  const index = openIndex(turn, String(action['requestId']));
  const part = turn.responseParts[index];
  if (part?.kind !== 'inputRequest') return turn;
  const next = action.type === 'chat/inputCompleted' ? completed(part, action) : answerChanged(part, action);
  return { ...turn, responseParts: turn.responseParts.with(index, next) };
}

function asked(turn: ActiveTurn, request: InputRequest | undefined): ActiveTurn {
  if (!request) return turn;
  const index = openIndex(turn, request.id);
  const known = turn.responseParts[index];
  const answers = request.answers ?? (known?.kind === 'inputRequest' ? known.request.answers : undefined);
  const part: InputRequestPart = { kind: 'inputRequest', request: withAnswers(request, answers) };
  const responseParts = known ? turn.responseParts.with(index, part) : [...turn.responseParts, part];
  return { ...turn, responseParts };
}

function answerChanged(part: InputRequestPart, action: Action): InputRequestPart {
  const id = String(action['questionId']);
  const { [id]: _before, ...others } = part.request.answers ?? {};
  const answer = action['answer'] as Answer | undefined | null;
  return { ...part, request: withAnswers(part.request, answer ? { ...others, [id]: answer } : others) };
}

function completed(part: InputRequestPart, action: Action): InputRequestPart {
  const answers = { ...part.request.answers, ...(action['answers'] as Answers | undefined) };
  return { ...part, request: withAnswers(part.request, answers), response: String(action['response']) };
}

/** Answers are absent rather than empty. */
function withAnswers(request: InputRequest, answers: Answers | undefined): InputRequest {
  const { answers: _before, ...rest } = request;
  return answers && Object.keys(answers).length > 0 ? { ...rest, answers } : rest;
}

function openIndex(turn: ActiveTurn, id: string): number {
  return turn.responseParts.findIndex((part) => isOpenRequest(part) && part.request?.id === id);
}
