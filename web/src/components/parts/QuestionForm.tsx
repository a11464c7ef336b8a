// An open input request: its message, its questions, and the buttons that complete it.

import { useContext, useEffect, useId, useLayoutEffect, useMemo } from 'preact/hooks';

import type { InputRequest, InputResponse, Question } from '../../ahp/types';
import { AnswerSheet } from '../../answer-sheet';
import type { Page } from '../../page';
import { finalAnswers, isEmpty, isKnown, problemOf, sharedAnswer } from '../../question-entry';
import { MoreList } from '../MoreList';
import { PageContext } from '../page-context';
import { MarkdownText } from './MarkdownText';
import { QuestionField } from './QuestionField';
import { RequestAddress } from './RequestAddress';

/** The questions that are shown at first, and with every further click. */
const SHOWN_QUESTIONS = 20;

export function QuestionForm({ request }: { request: InputRequest }) {
  const page = useContext(PageContext);
  const chat = useMemo(() => page?.chat.peek()?.resource, [page]);
  const sheet = useAnswerSheet(request, page, chat);
  const hintId = useId();
  const questions = request.questions ?? [];
  const reason = whyNotAnswer(page, request.id);
  const missing = questions.some((question) => !isReady(question, request, sheet));
  const empty = questions.filter((question) => isKnown(question) && isEmpty(sheet.entry(question))).length;
  const allEmpty = questions.length > 0 && empty === questions.length;
  const respond = (response: InputResponse) => {
    if (!page || chat === undefined || reason !== undefined) return;
    sheet.dropUnsent();
    page.respond(chat, request.id, response, response === 'accept' ? finalAnswers(questions, (each) => sheet.entry(each)) : undefined);
  };

  return (
    <form
      class="question"
      aria-label="Question"
      data-open-request={request.id}
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        if (!missing && !allEmpty) respond('accept');
      }}
    >
      {request.message && <MarkdownText text={request.message} streaming={false} />}
      {request.url && <RequestAddress address={request.url} />}
      <MoreList items={questions} step={SHOWN_QUESTIONS} what="questions">
        {(question, index) => <QuestionField key={index} question={question} sheet={sheet} />}
      </MoreList>
      <div class="question-buttons">
        <button type="submit" class="primary" disabled={missing || allEmpty || reason !== undefined} aria-describedby={hintId}>
          {submitLabel(questions.length, empty)}
        </button>
        {allEmpty && !missing && (
          <button type="button" class="plain" disabled={reason !== undefined} onClick={() => respond('accept')}>
            {questions.length > 1 ? 'Skip all questions' : 'Skip the question'}
          </button>
        )}
        <button type="button" class="plain" disabled={reason !== undefined} onClick={() => respond('decline')}>
          Decline
        </button>
        <button type="button" class="plain" disabled={reason !== undefined} onClick={() => respond('cancel')}>
          Cancel
        </button>
        <span id={hintId} class="hint">
          {reason}
        </span>
      </div>
    </form>
  );
}

/** Says what happens to questions without an answer. */
function submitLabel(questions: number, empty: number): string {
  if (questions === 0) return 'Continue';
  if (empty === 0 || empty === questions) return 'Submit';
  return empty === 1 ? 'Submit and skip 1 question' : `Submit and skip ${empty} questions`;
}

/** The fields of the request, kept up to date with the drafts of other clients. */
function useAnswerSheet(request: InputRequest, page: Page | undefined, chat: string | undefined): AnswerSheet {
  const sheet = useMemo(
    () =>
      new AnswerSheet(request, {
        send: (questionId, answer) => {
          if (chat !== undefined) page?.shareAnswer(chat, request.id, questionId, answer);
        },
        isUnconfirmed: (questionId) =>
          page?.sentAnswers.peek().some((sent) => sent.requestId === request.id && sent.questionId === questionId) ?? false,
      }),
    [request.id, page, chat],
  );
  useLayoutEffect(() => sheet.update(request), [sheet, request]);
  useEffect(() => () => sheet.dropUnsent(), [sheet]);
  return sheet;
}

/** A question of an unknown kind is ready if it needs no answer or another client has drafted one. */
function isReady(question: Question, request: InputRequest, sheet: AnswerSheet): boolean {
  if (isKnown(question)) return problemOf(question, sheet.entry(question)) === undefined;
  return question.required !== true || sharedAnswer(request, question) !== undefined;
}

function whyNotAnswer(page: Page | undefined, requestId: string): string | undefined {
  if (page?.status.value.kind !== 'online') return 'Not connected to the host';
  const sending = page.sentAnswers.value.some((sent) => sent.requestId === requestId && sent.questionId === undefined);
  return sending ? 'Sending…' : undefined;
}
