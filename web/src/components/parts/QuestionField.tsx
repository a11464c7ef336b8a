// One question with the fields for its answer.

import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';

import type { InputOption, Question } from '../../ahp/types';
import type { AnswerSheet } from '../../answer-sheet';
import { oneLine } from '../../format';
import { EMPTY, type Entry, isEmpty, isKnown, problemOf } from '../../question-entry';
import { LongText } from '../LongText';
import { OptionList } from './OptionList';

const YES_NO: InputOption[] = [
  { id: 'true', label: 'Yes' },
  { id: 'false', label: 'No' },
];

/** The on-screen keyboards for the text formats of the protocol. Text of another format can have several lines. */
const KEYBOARDS = new Map<string | undefined, Keyboard>([
  ['email', 'email'],
  ['uri', 'url'],
]);

type Keyboard = 'text' | 'email' | 'url' | 'numeric' | 'decimal';

interface QuestionFieldProps {
  question: Question;
  sheet: AnswerSheet;
}

export function QuestionField({ question, sheet }: QuestionFieldProps) {
  const id = useId();
  const entry = sheet.entry(question);
  const problem = isEmpty(entry) ? undefined : problemOf(question, entry);
  return (
    <div class="question-field" role="group" aria-labelledby={`${id}-title`} aria-describedby={`${id}-problem`}>
      <QuestionTitle id={`${id}-title`} question={question} />
      <Fields question={question} sheet={sheet} entry={entry} labelId={`${id}-title`} wrong={problem !== undefined} />
      <p id={`${id}-problem`} class="hint is-wrong" hidden={problem === undefined}>
        {problem && `${problem}.`}
      </p>
    </div>
  );
}

/** The title and message of a question. */
function QuestionTitle({ id, question }: { id: string; question: Question }) {
  const title = oneLine(question.title);
  const required = question.required === true && <span class="required">required</span>;
  return (
    <div id={id}>
      {title && (
        <h3>
          {title} {required}
        </h3>
      )}
      <div class={title ? 'question-text' : 'question-text is-title'}>
        <LongText text={String(question.message ?? '')} /> {!title && required}
      </div>
    </div>
  );
}

interface FieldsProps extends QuestionFieldProps {
  entry: Entry;
  labelId: string;
  wrong: boolean;
}

function Fields({ question, sheet, entry, labelId, wrong }: FieldsProps) {
  const choose = (chosen: readonly string[], text = entry.text) => sheet.change(question, { chosen, text });
  const typeInto = (text: string, chosen = entry.chosen) => sheet.type(question, { chosen, text });
  const field = { value: entry.text, 'aria-invalid': wrong, 'aria-labelledby': labelId, onBlur: () => sheet.leave(question) };
  if (!isKnown(question)) return <p class="quiet">This page cannot show the fields of this question. Answer it in another client.</p>;
  switch (question.kind) {
    case 'text': {
      const keyboard = KEYBOARDS.get(question.format);
      if (keyboard !== undefined) return <LineField {...field} keyboard={keyboard} onType={typeInto} />;
      return <textarea rows={2} {...field} onInput={(event) => typeInto(event.currentTarget.value)} />;
    }
    case 'number':
      return <LineField {...field} keyboard="decimal" onType={typeInto} />;
    case 'integer':
      return <LineField {...field} keyboard="numeric" onType={typeInto} />;
    case 'boolean':
      return (
        <Clearable question={question} entry={entry} onClear={() => sheet.change(question, EMPTY)}>
          <OptionList options={YES_NO} chosen={entry.chosen} onChoose={choose} />
        </Clearable>
      );
    case 'single-select':
      return (
        <Clearable question={question} entry={entry} onClear={() => sheet.change(question, EMPTY)}>
          <OptionList options={question.options} chosen={entry.text === '' ? entry.chosen : []} onChoose={(chosen) => choose(chosen, '')} />
          {question.allowFreeformInput === true && (
            <LineField {...field} hint="Or write your own answer" onType={(text) => typeInto(text, [])} />
          )}
        </Clearable>
      );
    case 'multi-select':
      return (
        <>
          <OptionList options={question.options} chosen={entry.chosen} multiple onChoose={choose} />
          {question.allowFreeformInput === true && <LineField {...field} hint="Add your own answer" onType={typeInto} />}
        </>
      );
  }
}

interface LineFieldProps {
  value: string;
  'aria-invalid': boolean;
  'aria-labelledby': string;
  onBlur: () => void;
  onType: (text: string) => void;
  keyboard?: Keyboard;
  hint?: string;
}

function LineField({ keyboard = 'text', hint, onType, ...field }: LineFieldProps) {
  return (
    <input
      type="text"
      inputmode={keyboard}
      autocomplete="off"
      placeholder={hint}
      {...field}
      onInput={(event) => onType(event.currentTarget.value)}
    />
  );
}

interface ClearableProps {
  question: Question;
  entry: Entry;
  onClear: () => void;
  children: ComponentChildren;
}

/** A radio button cannot be cleared, so an optional question has a button for that. */
function Clearable({ question, entry, onClear, children }: ClearableProps) {
  return (
    <>
      {children}
      {question.required !== true && !isEmpty(entry) && (
        <button type="button" class="text-button question-clear" onClick={onClear}>
          Clear the answer
        </button>
      )}
    </>
  );
}
