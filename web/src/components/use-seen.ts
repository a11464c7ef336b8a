// Tells whether an element is near the visible area, and whether it is wide.

import { type ReadonlySignal, useSignal } from '@preact/signals';
import type { RefObject } from 'preact';
import { useLayoutEffect } from 'preact/hooks';

/** How far outside of the visible area an element counts as visible. */
const MARGIN = '200px';

/** A browser that cannot observe the position treats every element as visible. */
export function useVisible(place: RefObject<HTMLElement | null>): ReadonlySignal<boolean> {
  const visible = useSignal(typeof IntersectionObserver === 'undefined');
  useLayoutEffect(() => {
    if (!place.current || typeof IntersectionObserver === 'undefined') return;
    const observer = new IntersectionObserver((entries) => (visible.value = entries.at(-1)?.isIntersecting ?? false), {
      rootMargin: MARGIN,
    });
    observer.observe(place.current);
    return () => observer.disconnect();
  }, []);
  return visible;
}

export function useWiderThan(place: RefObject<HTMLElement | null>, pixels: number): ReadonlySignal<boolean> {
  const wide = useSignal(false);
  useLayoutEffect(() => {
    const element = place.current;
    if (!element || typeof ResizeObserver === 'undefined') return;
    const measure = () => (wide.value = element.clientWidth >= pixels);
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  return wide;
}
