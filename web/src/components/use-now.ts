// The current time, updated now and then while an element shows an age.

import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';

const CLOCK_MS = 10_000;

export function useNow(): number {
  const now = useSignal(Date.now());
  useEffect(() => {
    const timer = setInterval(() => (now.value = Date.now()), CLOCK_MS);
    return () => clearInterval(timer);
  }, []);
  return now.value;
}
