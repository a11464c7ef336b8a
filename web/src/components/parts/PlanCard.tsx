// A plan that waits for its review: the plan, a field for feedback, and the buttons that answer.

import { useSignal } from '@preact/signals';

import type { ToolCall } from '../../ahp/types';
import { type Choice, choicesOf } from '../../choices';
import { oneLine, plainText } from '../../format';
import { jsonObject } from '../../tool-input';
import { ChoiceButtons } from './ChoiceButtons';
import { MarkdownText } from './MarkdownText';
import { RequestCard } from './RequestCard';
import { StoredOutput } from './StoredOutput';
import { useDecision } from './use-decision';

/** The characters of a plan in which its title is looked for. */
const TITLE_SEARCH_CHARACTERS = 1_000;

export function PlanCard({ call }: { call: ToolCall }) {
  const { blocked, decide } = useDecision(call);
  const feedback = useSignal('');
  const given = feedback.value.trim();
  const choices = choicesOf(call);
  return (
    <RequestCard
      id={call.toolCallId}
      title={oneLine(plainText(call.confirmationTitle)) || 'Approve this plan?'}
      tool={oneLine(call.displayName) || 'Plan'}
    >
      <Plan call={call} />
      <label class="request-reason">
        <span>Feedback, if the plan needs changes</span>
        <textarea rows={2} value={feedback.value} onInput={(event) => (feedback.value = event.currentTarget.value)} />
      </label>
      <ChoiceButtons
        subject={call.toolInput}
        choices={choices}
        primary={choices.find((choice) => choice.approved === (given === ''))}
        blocked={blocked}
        unavailable={(choice: Choice) => (choice.approved && given !== '' ? 'Remove the feedback to approve the plan.' : undefined)}
        onChoose={({ approved, id }) => decide({ approved, optionId: id, suggestion: approved ? undefined : given })}
      />
    </RequestCard>
  );
}

/** The text of the plan. */
export function Plan({ call }: { call: ToolCall }) {
  if (typeof call.toolInput === 'object') return <StoredOutput output={call.toolInput} />;
  const text = planText(call);
  return <div class="plan">{text ? <MarkdownText text={text} streaming={false} /> : <p class="quiet">The plan has no text.</p>}</div>;
}

/** The first line of the plan that says something. */
export function planTitle(call: ToolCall): string {
  const lines = planText(call).slice(0, TITLE_SEARCH_CHARACTERS).split('\n');
  return lines.map((line) => line.replace(/^[#\s]+/, '')).find((line) => line !== '') ?? '';
}

/** The plan is the input itself, or a field of it, or the message. */
function planText(call: ToolCall): string {
  const input = typeof call.toolInput === 'string' ? call.toolInput : '';
  const field = jsonObject(input)?.['plan'];
  return (typeof field === 'string' ? field : input) || plainText(call.invocationMessage);
}
