// Keeps the focus from getting lost when the focused element disappears.

import type { RefObject } from 'preact';
import { useLayoutEffect } from 'preact/hooks';

/** When the element disappears with the focus inside, the element that `target` found gets the focus. */
export function useFocusReturn(place: RefObject<HTMLElement | null>, target: (place: HTMLElement) => HTMLElement | null | undefined): void {
  useLayoutEffect(() => {
    const element = place.current;
    const next = element && target(element);
    return () => {
      if (element?.contains(document.activeElement)) next?.focus({ preventScroll: true });
    };
  }, []);
}
