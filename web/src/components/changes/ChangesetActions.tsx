// The buttons for a whole changeset.

import { useSignal } from '@preact/signals';

import type { ChangesetOperation } from '../../ahp/changeset-types';
import { oneLine, plainText } from '../../format';
import { ConfirmDialog } from '../ConfirmDialog';
import { type ChangesetControls, isEnabled } from './use-changeset';

const RESTORE_QUESTION =
  'All files that this turn and later turns changed get the content that they had before this turn. Your own changes in ' +
  'other places stay. “Redo” takes it back.';

interface ChangesetActionsProps {
  controls: ChangesetControls;
  /** The operations that are offered, in this order. */
  offered: readonly string[];
}

export function ChangesetActions({ controls, offered }: ChangesetActionsProps) {
  const operations = offered.flatMap((id) => controls.operation(id, 'changeset') ?? []);
  const shown = operations.filter((operation) => operation.id !== 'redo' || isEnabled(operation));
  if (shown.length === 0) return null;
  return (
    <div class="changes-actions">
      {shown.map((operation) => (
        <Action key={operation.id} operation={operation} controls={controls} />
      ))}
    </div>
  );
}

function labelOf({ id, label }: ChangesetOperation): string {
  const name = oneLine(label) || oneLine(id);
  if (id === 'restore') return 'Restore files to before this turn';
  // A redo says what it takes back.
  return id === 'redo' ? name : `${name} all`;
}

function Action({ operation, controls }: { operation: ChangesetOperation; controls: ChangesetControls }) {
  const asking = useSignal(false);
  const label = labelOf(operation);
  const question = oneLine(plainText(operation.confirmation), 600) || (operation.id === 'restore' ? RESTORE_QUESTION : '');
  const blocked = controls.blocked ?? (isEnabled(operation) ? undefined : oneLine(operation.description) || 'Not possible now');
  const press = () => {
    if (blocked !== undefined) return;
    if (question === '') controls.run(operation.id);
    else asking.value = true;
  };
  return (
    <>
      <button
        type="button"
        class="small"
        aria-disabled={blocked !== undefined}
        title={blocked ?? oneLine(operation.description)}
        onClick={press}
      >
        {label}
      </button>
      {asking.value && (
        <ConfirmDialog
          title={`${label}?`}
          text={question}
          action={operation.id === 'restore' ? 'Restore' : label}
          onConfirm={() => controls.run(operation.id)}
          onClose={() => (asking.value = false)}
        />
      )}
    </>
  );
}
