// The user's answers to input requests and permission requests: dispatched once, confirmed or refused by the host.
// The host takes the first answer of all clients.

import { batch, type ReadonlySignal, signal } from '@preact/signals';

import { openConfirmation } from '../ahp/confirmations';
import { openRequest } from '../ahp/input-requests';
import type { Action, ActionEnvelope, Answer, Answers, ChatState, InputResponse, ResponsePart, Uri } from '../ahp/types';
import { type SentAnswer, SentAnswers } from './sent-answers';

/** What the user decided about a tool call. */
export interface Decision {
  approved: boolean;
  optionId?: string | undefined;
  /** What the agent shall do instead, or why the call was denied. */
  suggestion?: string | undefined;
  editedInput?: string | undefined;
}

export interface RequestAnswersOptions {
  dispatch(channel: Uri, action: Action): number | undefined;
  chat(uri: Uri): ChatState | undefined;
  publish(): void;
  notice(text: string): void;
}

/** A dispatch is only answered by its echo, and the host ignores a dispatch to an unknown session. */
const ECHO_TIMEOUT_MS = 30_000;
/** The answers of other clients that are remembered. */
const OTHERS_REMEMBERED = 200;

export class RequestAnswers {
  readonly #sent = new SentAnswers();
  readonly #others = signal<ReadonlyMap<string, string>>(new Map());
  readonly #options: RequestAnswersOptions;

  /** The answers that the host has not confirmed yet. */
  readonly unconfirmed = this.#sent.list;
  /** The ids of the clients that answered a request while this page was connected, by the request's id. */
  readonly answeredByOthers: ReadonlySignal<ReadonlyMap<string, string>> = this.#others;

  constructor(options: RequestAnswersOptions) {
    this.#options = options;
  }

  /** Shares an unfinished answer with the other clients of a chat. Without a connection it is not shared. */
  share(chat: Uri, requestId: string, questionId: string, answer: Answer): void {
    this.#dispatch({ chat, requestId, questionId }, { type: 'chat/inputAnswerChanged', requestId, questionId, answer });
  }

  /** Completes an input request. */
  respond(chat: Uri, requestId: string, response: InputResponse, answers?: Answers): void {
    const action = { type: 'chat/inputCompleted', requestId, response, ...(answers ? { answers } : {}) };
    const sent = this.#dispatch({ chat, requestId }, action);
    if (!sent) this.#options.notice('Not connected: the question cannot be answered from here right now.');
  }

  /** Allows or denies a tool call. */
  decide(chat: Uri, turnId: string, toolCallId: string, decision: Decision): void {
    const { approved, optionId, suggestion, editedInput } = decision;
    const action: Action = {
      type: 'chat/toolCallConfirmed',
      turnId,
      toolCallId,
      approved,
      ...(approved ? { confirmed: 'user-action' } : { reason: 'denied', reasonMessage: 'Denied in the browser' }),
      ...(optionId === undefined ? {} : { selectedOptionId: optionId }),
      ...(suggestion ? { userSuggestion: { text: suggestion, origin: { kind: 'user' } } } : {}),
      ...(editedInput === undefined ? {} : { editedToolInput: editedInput }),
    };
    const sent = this.#dispatch({ chat, requestId: toolCallId }, action);
    if (!sent) this.#options.notice('Not connected: the request cannot be answered from here right now.');
  }

  /** Handles the echo of an answer; returns false if the dispatch was not an answer. */
  echoed(clientSeq: number, rejection: string | undefined): boolean {
    const answer = this.#sent.sentAs(clientSeq);
    if (!answer) return false;
    batch(() => {
      this.#sent.remove(answer);
      this.#options.publish();
    });
    if (rejection !== undefined && answer.questionId === undefined) this.#refused(answer, rejection);
    return true;
  }

  /** Remembers who completed a request, if another client did. */
  answeredElsewhere({ action, origin }: ActionEnvelope): void {
    const completes = action.type === 'chat/toolCallConfirmed' || action.type === 'chat/inputCompleted';
    if (!completes || !origin) return;
    const id = String(action['toolCallId'] ?? action['requestId']);
    this.#others.value = new Map([...[...this.#others.value].slice(1 - OTHERS_REMEMBERED), [id, origin.clientId]]);
  }

  /** After a reconnect, the state shows whether the host has the answers. */
  clearUnconfirmed(): void {
    this.#sent.clear();
  }

  #dispatch(answer: Omit<SentAnswer, 'clientSeq'>, action: Action): boolean {
    const clientSeq = this.#options.dispatch(answer.chat, action);
    if (clientSeq === undefined) return false;
    const sent = { ...answer, clientSeq };
    this.#sent.add(sent);
    setTimeout(() => this.#overdue(sent), ECHO_TIMEOUT_MS);
    return true;
  }

  #overdue(answer: SentAnswer): void {
    if (!this.#sent.remove(answer) || answer.questionId !== undefined) return;
    this.#options.notice('The host did not accept the answer. It may no longer have this session.');
  }

  #refused({ chat: uri, requestId }: SentAnswer, rejection: string): void {
    const chat = this.#options.chat(uri);
    const isOpen = openRequest(chat?.activeTurn, requestId) ?? openConfirmation(chat?.activeTurn, requestId);
    if (isOpen) this.#options.notice(`The host refused the answer: ${rejection}`);
    else if (this.#others.value.has(requestId)) this.#options.notice(`Another client answered first${outcome(chat, requestId)}.`);
    else this.#options.notice('The answer came too late: the request is no longer open.');
  }
}

/** How a request was answered, in words that continue a sentence. */
function outcome(chat: ChatState | undefined, id: string): string {
  const turns = chat ? [chat.activeTurn, chat.turns.at(-1)] : [];
  const call = turns.flatMap((turn) => turn?.responseParts ?? []).findLast((part) => callId(part) === id);
  if (call?.kind !== 'toolCall') return '';
  const { selectedOption, status } = call.toolCall;
  if (selectedOption) return `: ${selectedOption.label}`;
  return status === 'cancelled' ? ': denied' : ': allowed';
}

function callId(part: ResponsePart): string | undefined {
  return part?.kind === 'toolCall' ? part.toolCall?.toolCallId : undefined;
}
