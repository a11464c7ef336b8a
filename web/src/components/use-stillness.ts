// Watches where the buttons inside an element are, so that a press counts only after they were there for a while.

import type { RefObject } from 'preact';
import { useEffect, useLayoutEffect, useMemo } from 'preact/hooks';

import { Stillness } from '../stillness';

const WATCH_MS = 100;

/**
 * Returns a function that tells whether a press on a button counts now. A change of the subject is like a move. The
 * element has the attribute `data-ready` while presses count.
 */
export function useStillness(place: RefObject<HTMLElement | null>, subject: unknown): () => boolean {
  const stillness = useMemo(() => new Stillness(), []);
  const look = () => {
    if (document.hidden) stillness.forget();
    const position = positionOf(place.current);
    const now = performance.now();
    const isStill = stillness.isStill(position, now);
    if (!document.hidden) stillness.see(position, now);
    place.current?.toggleAttribute('data-ready', isStill);
    return isStill;
  };
  useLayoutEffect(() => {
    stillness.forget();
    place.current?.removeAttribute('data-ready');
  }, [subject]);
  useLayoutEffect(() => {
    // The buttons may have moved.
    if (place.current?.hasAttribute('data-ready')) look();
  });
  useEffect(() => {
    look();
    const timer = setInterval(look, WATCH_MS);
    // A hidden page looks rarely.
    document.addEventListener('visibilitychange', look);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', look);
    };
  }, []);
  return look;
}

function positionOf(place: HTMLElement | null): string {
  const buttons = [...(place?.querySelectorAll('button') ?? [])];
  return buttons
    .map((button) => button.getBoundingClientRect())
    .map(({ left, top }) => `${Math.round(left)},${Math.round(top)}`)
    .join(' ');
}
