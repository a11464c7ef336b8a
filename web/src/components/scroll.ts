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
  const request = firstRequest(scroller);
  if (!request) {
    scroller.scrollTop = scroller.scrollHeight;
    return undefined;
  }
  const now = performance.now();
  const id = request.dataset['openRequest'];
  const known = shown?.id === id ? shown : undefined;
  if (known && now > known.settlesAt) return known;
  const place = request.getBoundingClientRect();
  const view = scroller.getBoundingClientRect();
  const fits = place.top >= view.top && place.bottom <= view.bottom;
  if (!fits) scroller.scrollTop = Math.min(scroller.scrollHeight, place.top - view.top + scroller.scrollTop - GAP_PX);
  return known ?? { id, settlesAt: now + SETTLING_MS };
}

/** Scrolls to the first open request if it is below the view, otherwise to the end; returns the request. */
export function scrollOnDemand(scroller: HTMLElement): ShownRequest | undefined {
  const request = firstRequest(scroller);
  const isBelow = request && request.getBoundingClientRect().top > scroller.getBoundingClientRect().bottom - GAP_PX;
  if (isBelow) return scrollToNewest(scroller, undefined);
  scroller.scrollTop = scroller.scrollHeight;
  return request && { id: request.dataset['openRequest'], settlesAt: 0 };
}

/** Brings the first open request into view and focuses its first button or field. */
export function focusRequest(): void {
  const request = firstRequest(document);
  const target = request?.querySelector<HTMLElement>('.choices button') ?? request?.querySelector<HTMLElement>('input, textarea, button');
  target?.focus({ preventScroll: true });
  target?.scrollIntoView({ block: 'nearest' });
}

function firstRequest(place: ParentNode): HTMLElement | undefined {
  return place.querySelector<HTMLElement>('[data-open-request]') ?? undefined;
}
