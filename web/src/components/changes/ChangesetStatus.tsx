// What a changeset does at the moment, if it is not simply there.

import { oneLine } from '../../format';
import type { ChangesetView } from '../../page/changesets';

const TEXT_CHARACTERS = 400;

interface ChangesetStatusProps {
  view: ChangesetView | undefined;
  /** Whether the result of a failed operation is shown, too. */
  failed?: boolean | undefined;
}

export function ChangesetStatus({ view, failed: isShown = false }: ChangesetStatusProps) {
  const words = statusWords(view);
  const failed = isShown ? '' : operationFailure(view);
  return (
    <>
      {words && (
        <p
          class={view?.failure !== undefined || view?.state?.status === 'error' ? 'changes-status is-wrong' : 'changes-status'}
          role="status"
        >
          {words}
        </p>
      )}
      {failed && <p class="changes-status is-wrong">{failed}</p>}
    </>
  );
}

function statusWords(view: ChangesetView | undefined): string {
  if (view?.failure !== undefined) return `The changes cannot be shown: ${oneLine(view.failure, TEXT_CHARACTERS)}`;
  switch (view?.state?.status) {
    case undefined:
    case 'computing':
      return 'Computing the changes…';
    case 'recomputing':
      return 'Updating…';
    case 'error':
      return `The changes could not be computed: ${oneLine(view?.state?.error?.message, TEXT_CHARACTERS) || 'no reason was given'}`;
    default:
      return '';
  }
}

function operationFailure(view: ChangesetView | undefined): string {
  const operations = Array.isArray(view?.state?.operations) ? view.state.operations : [];
  const failed = operations.find((each) => each.status === 'error');
  return failed ? `${oneLine(failed.label)}: ${oneLine(failed.error?.message, TEXT_CHARACTERS) || 'failed'}` : '';
}
