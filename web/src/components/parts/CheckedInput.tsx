// The input of a tool call that the user has to check: every field readable, nothing hidden without saying so.

import { useMemo } from 'preact/hooks';

import { type InputField, inputFields } from '../../tool-input';
import { FoldedText } from './FoldedText';

/** A value of at most this many characters is shown next to its name. */
const SHORT_CHARACTERS = 120;

export function CheckedInput({ input }: { input: string }) {
  const fields = useMemo(() => inputFields(input), [input]);
  return (
    <div class="checked-input">
      {fields.map((field, index) => (
        <Field key={index} field={field} />
      ))}
    </div>
  );
}

function Field({ field }: { field: InputField }) {
  const { name, text, change } = field;
  if (name === undefined) return <FoldedText text={text} />;
  if (change === undefined && text.length <= SHORT_CHARACTERS && !text.includes('\n')) {
    return (
      <div class="checked-field">
        <span class="tool-label">{name}</span> <code>{text}</code>
      </div>
    );
  }
  return (
    <div>
      <div class="tool-label">{change === undefined ? name : `${name} (${change})`}</div>
      <FoldedText text={text} look={change && `is-${change}`} />
    </div>
  );
}
