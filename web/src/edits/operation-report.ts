// The result of an operation on a changeset: what the host says, and which files it left alone.

import type { OperationResult } from '../ahp/changeset-types';
import { RpcError } from '../ahp/rpc';
import type { Uri } from '../ahp/types';
import { oneLine, plainText } from '../format';

export interface RefusedFile {
  uri: Uri;
  reason: string;
  /** The file with marked conflicts. */
  preview?: Uri;
  /** Whether the operation can be repeated so that it overwrites the conflicting lines. */
  canForce: boolean;
}

export interface OperationReport {
  message: string;
  refused: readonly RefusedFile[];
  /** Whether no file was changed: all were refused, or the operation failed. */
  unchanged: boolean;
  /** Whether nothing was done, for a reason that is not about single files. */
  failed: boolean;
}

/** The files that are listed. */
const MAX_REFUSED = 100;
const TEXT_CHARACTERS = 600;

export function reportOf(result: OperationResult | null | undefined): OperationReport {
  return report(plainText(result?.message), result?._meta?.['innkeeper.refused'], false);
}

/** A host that refused every file answers with an error that lists them. */
export function failureOf(error: unknown): OperationReport {
  const data = error instanceof RpcError ? (error.data as { refused?: unknown } | null | undefined) : undefined;
  return report(error instanceof Error ? error.message : String(error), data?.refused, true);
}

function report(message: string, listed: unknown, isError: boolean): OperationReport {
  const refused = (Array.isArray(listed) ? listed.slice(0, MAX_REFUSED) : []).flatMap(refusedOf);
  // The further lines of the message repeat the refused files.
  const shown = refused.length > 0 ? (message.split('\n')[0] ?? '') : message;
  return { message: oneLine(shown, TEXT_CHARACTERS), refused, unchanged: isError, failed: isError && refused.length === 0 };
}

function refusedOf(value: unknown): RefusedFile[] {
  const { uri, reason, preview, canForce } = (typeof value === 'object' && value !== null ? value : {}) as Record<string, unknown>;
  if (typeof uri !== 'string') return [];
  return [
    {
      uri,
      reason: oneLine(reason, TEXT_CHARACTERS),
      ...(typeof preview === 'string' ? { preview } : {}),
      canForce: canForce === true,
    },
  ];
}
