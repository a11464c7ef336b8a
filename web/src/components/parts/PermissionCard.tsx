// A tool call that waits for permission: what it would do, why it asks, and the buttons that answer.

import { useSignal } from '@preact/signals';
import { useContext, useLayoutEffect, useMemo, useRef } from 'preact/hooks';

import type { FileEdit } from '../../ahp/changeset-types';
import type { ToolCall } from '../../ahp/types';
import { addsRules, type Choice, choicesOf } from '../../choices';
import { plannedEdits } from '../../edits/file-edits';
import { oneLine, plainText, readableInput } from '../../format';
import { type PermissionDetails, permissionDetails } from '../../host-metadata';
import { jsonObject } from '../../tool-input';
import { EditHead } from '../changes/EditHead';
import { DiffView } from '../diff/DiffView';
import { MoreList } from '../MoreList';
import { PageContext } from '../page-context';
import { CheckedInput } from './CheckedInput';
import { ChoiceButtons } from './ChoiceButtons';
import { MarkdownText } from './MarkdownText';
import { RequestCard } from './RequestCard';
import { StoredOutput } from './StoredOutput';
import { useDecision } from './use-decision';

/** Text fields grow up to this many lines. */
const MAX_ROWS = 14;
/** The files and the lines of their diffs that are shown at first, and with every further click. */
const SHOWN_EDITS = 5;
const SHOWN_LINES = 40;

export function PermissionCard({ call }: { call: ToolCall }) {
  const { blocked, decide } = useDecision(call);
  /** The edited input; undefined unless the user edits it. */
  const edited = useSignal<string | undefined>(undefined);
  /** Why the call is denied; undefined unless the user wants to say it. */
  const reason = useSignal<string | undefined>(undefined);
  const details = permissionDetails(call);
  const input = typeof call.toolInput === 'string' ? call.toolInput : undefined;
  const original = input === undefined ? '' : readableInput(input);
  const changed = edited.value !== undefined && edited.value !== original ? edited.value : undefined;
  const choices = choicesOf(call);
  const once = choices.find((choice) => choice.approved);
  const wrong = changed === undefined ? undefined : inputProblem(original, changed);

  const choose = (choice: Choice) => {
    const suggestion = choice.approved ? undefined : reason.value?.trim();
    decide({ approved: choice.approved, optionId: choice.id, suggestion, editedInput: choice.approved ? changed : undefined });
  };
  const unavailable = (choice: Choice): string | undefined => {
    if (!choice.approved) return undefined;
    if (reason.value?.trim()) return 'Remove the reason for the denial to allow it.';
    // The host computed the rules for the input that the agent wrote.
    return wrong ?? (changed !== undefined && choice !== once ? 'A changed input can be allowed once.' : undefined);
  };

  return (
    <RequestCard id={call.toolCallId} title={titleOf(call)} tool={oneLine(call.displayName) || oneLine(call.toolName)}>
      <What call={call} />
      {edited.value === undefined ? (
        <Input call={call} onEdit={() => (edited.value = original)} />
      ) : (
        <EditedInput
          text={edited.value}
          wrong={wrong}
          onType={(text) => (edited.value = text)}
          onReset={() => (edited.value = undefined)}
        />
      )}
      <Why details={details} remembered={choices.filter(addsRules)} />
      {reason.value !== undefined && <DenialReason text={reason.value} onType={(text) => (reason.value = text)} />}
      <ChoiceButtons
        subject={call.toolInput}
        choices={choices}
        primary={reason.value === undefined ? once : choices.find((choice) => !choice.approved)}
        blocked={blocked}
        unavailable={unavailable}
        onChoose={choose}
      >
        {reason.value === undefined && (
          <button type="button" class="text-button" onClick={() => (reason.value = '')}>
            Deny with a reason…
          </button>
        )}
      </ChoiceButtons>
    </RequestCard>
  );
}

function titleOf(call: ToolCall): string {
  return oneLine(plainText(call.confirmationTitle)) || 'Allow this?';
}

/** The message of the call, unless it only repeats the input. */
function What({ call }: { call: ToolCall }) {
  const message = plainText(call.invocationMessage);
  const input = typeof call.toolInput === 'string' ? call.toolInput.trim() : '';
  const repeats = input !== '' && message.includes(input);
  return (
    <>
      {call.intention && <p class="request-intention">{oneLine(call.intention, 400)}</p>}
      {message !== '' && !repeats && <MarkdownText text={message} streaming={false} />}
    </>
  );
}

function Input({ call, onEdit }: { call: ToolCall; onEdit: () => void }) {
  const edits = useMemo(() => plannedEdits(call), [call]);
  /** Without a diff, the input is all that there is to check. */
  const unavailable = useSignal(false);
  const raw = <RawInput call={call} />;
  const hasInput = typeof call.toolInput === 'object' || Boolean(call.toolInput);
  return (
    <div class="request-input">
      {edits.length > 0 && <Edits edits={edits} onUnavailable={() => (unavailable.value = true)} />}
      {edits.length === 0
        ? raw
        : hasInput && (
            <details class="raw" open={unavailable.value}>
              <summary>Raw input</summary>
              {raw}
            </details>
          )}
      {typeof call.toolInput === 'string' && call.editable === true && (
        <button type="button" class="text-button request-link" onClick={onEdit}>
          Edit
        </button>
      )}
    </div>
  );
}

function RawInput({ call }: { call: ToolCall }) {
  if (typeof call.toolInput === 'object') return <StoredOutput output={call.toolInput} />;
  return call.toolInput ? <CheckedInput input={call.toolInput} /> : null;
}

/** What the call would change. */
function Edits({ edits, onUnavailable }: { edits: readonly FileEdit[]; onUnavailable: () => void }) {
  const directories = useContext(PageContext)?.session.value?.workingDirectories;
  return (
    <MoreList items={edits} step={SHOWN_EDITS} what="files">
      {(edit, index) => (
        <div key={index} class="edit">
          <EditHead edit={edit} directories={directories} />
          <DiffView edit={edit} lines={SHOWN_LINES} onUnavailable={onUnavailable} />
        </div>
      )}
    </MoreList>
  );
}

interface EditedInputProps {
  text: string;
  wrong: string | undefined;
  onType: (text: string) => void;
  onReset: () => void;
}

function EditedInput({ text, wrong, onType, onReset }: EditedInputProps) {
  const box = useFocus();
  return (
    <div class="request-input">
      <textarea
        ref={box}
        class="is-code"
        aria-label="Input"
        aria-invalid={wrong !== undefined}
        spellcheck={false}
        rows={Math.min(MAX_ROWS, text.split('\n', MAX_ROWS).length + 1)}
        value={text}
        onInput={(event) => onType(event.currentTarget.value)}
      />
      <button
        type="button"
        class="text-button request-link"
        onClick={(event) => {
          // The button disappears.
          event.currentTarget.closest<HTMLElement>('[data-open-request]')?.focus({ preventScroll: true });
          onReset();
        }}
      >
        Undo the changes
      </button>
    </div>
  );
}

/** Focuses a field when it appears, because the user asked for it. */
function useFocus() {
  const box = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => box.current?.focus({ preventScroll: true }), []);
  return box;
}

function DenialReason({ text, onType }: { text: string; onType: (text: string) => void }) {
  const box = useFocus();
  return (
    <label class="request-reason">
      <span>Why not, or what to do instead</span>
      <textarea ref={box} rows={2} value={text} onInput={(event) => onType(event.currentTarget.value)} />
    </label>
  );
}

function Why({ details, remembered }: { details: PermissionDetails; remembered: readonly Choice[] }) {
  const { reason, layer, rules, suggestedByAgent } = details;
  return (
    <>
      {(reason || layer) && (
        <p class="request-why">
          {reason} {layer && <span class="request-layer">{layer}</span>}
        </p>
      )}
      {rules.length > 0 && remembered.length > 0 && (
        <div class="request-why">
          {`“${remembered.map((choice) => choice.label).join('” and “')}” ${remembered.length > 1 ? 'add' : 'adds'} `}
          {rules.length > 1 ? 'these rules' : 'this rule'}
          {suggestedByAgent && ', which the agent suggested'}:
          <div class="request-rules">
            {rules.map((rule, index) => (
              <code key={index}>{rule}</code>
            ))}
          </div>
        </div>
      )}
    </>
  );
}

function inputProblem(original: string, changed: string): string | undefined {
  if (changed.trim() === '') return 'The input is empty.';
  return jsonObject(original) && !jsonObject(changed) ? 'The input is not a JSON object.' : undefined;
}
