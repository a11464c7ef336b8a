// An error, with the message from the host or the agent.

import type { ComponentChildren } from 'preact';

import type { ErrorInfo } from '../../ahp/types';
import { oneLine } from '../../format';
import { AlertIcon } from '../Icons';
import { LongText } from '../LongText';

interface ErrorCardProps {
  title: string;
  error: ErrorInfo;
  /** What can be done about it. */
  children?: ComponentChildren;
}

export function ErrorCard({ title, error, children }: ErrorCardProps) {
  return (
    <div class="error-card" role="group" aria-label={title}>
      <div class="error-head">
        <AlertIcon />
        <span>{title}</span>
        {error?.errorType && <code>{oneLine(error.errorType)}</code>}
      </div>
      <div class="error-message">
        <LongText text={error?.message || 'The host gave no reason.'} />
      </div>
      {error?.stack && (
        <details>
          <summary>Details</summary>
          <pre tabIndex={0}>
            <LongText text={error.stack} />
          </pre>
        </details>
      )}
      {children}
    </div>
  );
}
