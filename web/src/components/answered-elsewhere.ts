// Says that another client answered a request. Known only for answers that were given while this page was connected.

import { oneLine } from '../format';
import type { Page } from '../page';

export function answeredElsewhere(page: Page, requestId: string): string | undefined {
  const clientId = page.answeredByOthers.value.get(requestId);
  if (clientId === undefined) return undefined;
  const client = page.session.value?.activeClients?.find((each) => each.clientId === clientId);
  return `Answered in ${oneLine(client?.displayName) || 'another client'}`;
}
