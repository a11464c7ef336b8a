// Watches where the buttons inside an element are, so that a press counts only after they were there for a while.

import type { RefObject } from 'preact';
import { useEffect, useMemo } from 'preact/hooks';

import { Stillness } from '../stillness';

const WATCH_MS = 100;

/** Returns a function that tells whether a press on a button counts now. */
export function useStillness(place: RefObject<HTMLElement | null>): () => boolean {
  const stillness = useMemo(() => new Stillness(), []);
  useEffect(() => {
    const look = () => {
      if (document.hidden) stillness.forget();
      else stillness.see(positionOf(place.current), performance.now());
    };
    look();
    const timer = setInterval(look, WATCH_MS);
    // A hidden page looks rarely.
    const changed = () => stillness.forget();
    document.addEventListener('visibilitychange', changed);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', changed);
    };
  }, []);
  return () => stillness.isStill(positionOf(place.current), performance.now());
}

function positionOf(place: HTMLElement | null): string {
  const buttons = [...(place?.querySelectorAll('button') ?? [])];
  return buttons
    .map((button) => button.getBoundingClientRect())
    .map(({ left, top }) => `${Math.round(left)},${Math.round(top)}`)
    .join(' ');
}
