// An error, with the message from the host or the agent.

import type { ErrorInfo } from '../../ahp/types';
import { AlertIcon } from '../Icons';

export function ErrorCard({ title, error }: { title: string; error: ErrorInfo }) {
  return (
    <div class="error-card" role="group" aria-label={title}>
      <div class="error-head">
        <AlertIcon />
        <span>{title}</span>
        {error?.errorType && <code>{error.errorType}</code>}
      </div>
      <p class="error-message">{error?.message || 'The host gave no reason.'}</p>
      {error?.stack && (
        <details>
          <summary>Details</summary>
          <pre tabIndex={0}>{error.stack}</pre>
        </details>
      )}
    </div>
  );
}
