// Waiting for conditions.

import { setTimeout as pause } from 'node:timers/promises';

/** A first answer includes the start of a runtime on a machine that may be busy. */
export const WAIT_MS = 60_000;

const INTERVAL_MS = 50;

/** Waits until `probe` returns a value that is neither false nor undefined, and returns it. */
export async function until(probe, what, milliseconds = WAIT_MS) {
  const deadline = Date.now() + milliseconds;
  for (;;) {
    const value = await probe();
    if (value) return value;
    if (Date.now() > deadline) throw new Error(`Timeout after ${milliseconds / 1000} s: ${what}`);
    await pause(INTERVAL_MS);
  }
}
