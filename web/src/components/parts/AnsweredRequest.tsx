// An input request that is no longer open: its questions, and how it ended.

import { useContext } from 'preact/hooks';

import type { InputRequestPart, Question } from '../../ahp/types';
import { oneLine } from '../../format';
import { answerText, sharedAnswer } from '../../question-entry';
import { answeredElsewhere } from '../answered-elsewhere';
import { LongText } from '../LongText';
import { MoreList } from '../MoreList';
import { PageContext } from '../page-context';
import { MarkdownText } from './MarkdownText';
import { RequestAddress } from './RequestAddress';

/** The questions that are shown at first, and with every further click. */
const SHOWN_QUESTIONS = 20;

const OUTCOMES: Record<string, string> = { accept: 'Accepted', decline: 'Declined', cancel: 'Cancelled' };

export function AnsweredRequest({ part }: { part: InputRequestPart }) {
  const { request, response } = part;
  const questions = request.questions ?? [];
  const accepted = response === 'accept';
  const page = useContext(PageContext);
  const elsewhere = page && answeredElsewhere(page, request.id);
  return (
    <div class="question is-answered" data-response={response ?? 'none'}>
      <MoreList items={questions} step={SHOWN_QUESTIONS} what="questions">
        {(question, index) => (
          <div key={index} class="answered">
            <QuestionWords question={question} />
            {accepted && (
              <div class="answer">
                <LongText text={answerText(question, sharedAnswer(request, question)) ?? 'No answer'} />
              </div>
            )}
          </div>
        )}
      </MoreList>
      {(!accepted || questions.length === 0) && <p class="answer">{outcome(response)}</p>}
      {elsewhere && <p class="quiet">{elsewhere}.</p>}
      {(request.message || request.url) && (
        <details>
          <summary>Details</summary>
          {request.message && <MarkdownText text={request.message} streaming={false} />}
          {request.url && <RequestAddress address={request.url} />}
        </details>
      )}
    </div>
  );
}

function QuestionWords({ question }: { question: Question }) {
  return (
    <div class="quiet">
      {oneLine(question.title)}
      <LongText text={String(question.message ?? '')} />
    </div>
  );
}

function outcome(response: string | undefined): string {
  if (response === undefined) return 'Not answered';
  return OUTCOMES[response] ?? oneLine(response);
}
