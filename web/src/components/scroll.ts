// Keeps the newest part of a conversation visible. A request that waits for the user is brought into view once and then
// stays where it is, whatever is added below it.

/** The request that was brought into view. */
export interface ShownRequest {
  id: string | undefined;
  /** Until when it may still move, because its content appears step by step. */
  settlesAt: number;
}

const SETTLING_MS = 500;
/** The space above a request that does not fit into the view. */
const GAP_PX = 16;

/** Scrolls to the first open request, or to the end; returns the request that is in view now. */
export function scrollToNewest(scroller: HTMLElement, shown: ShownRequest | undefined): ShownRequest | undefined {
  const request = scroller.querySelector<HTMLElement>('[data-open-request]');
  if (!request) {
    scroller.scrollTop = scroller.scrollHeight;
    return undefined;
  }
  const now = performance.now();
  const id = request.dataset['openRequest'];
  const known = shown?.id === id ? shown : undefined;
  if (known && now > known.settlesAt) return known;
  const top = request.getBoundingClientRect().top - scroller.getBoundingClientRect().top + scroller.scrollTop;
  scroller.scrollTop = Math.min(scroller.scrollHeight, top - GAP_PX);
  return known ?? { id, settlesAt: now + SETTLING_MS };
}

/** Scrolls to the first open request if it is below the view, otherwise to the end. */
export function scrollOnDemand(scroller: HTMLElement): void {
  const request = scroller.querySelector('[data-open-request]');
  const isBelow = request && request.getBoundingClientRect().top > scroller.getBoundingClientRect().bottom - GAP_PX;
  if (isBelow) scrollToNewest(scroller, undefined);
  else scroller.scrollTop = scroller.scrollHeight;
}

/** Brings the first open request into view and focuses its first button. */
export function focusRequest(): void {
  const request = document.querySelector('[data-open-request]');
  request?.scrollIntoView({ block: 'nearest' });
  request?.querySelector<HTMLElement>('.choices button, input, textarea, button')?.focus({ preventScroll: true });
}
