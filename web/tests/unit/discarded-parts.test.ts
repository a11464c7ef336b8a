import { expect, it } from 'vitest';

import type { ResponsePart } from '../../src/ahp/types';
import { discardedParts, partId } from '../../src/host-metadata';

it('finds the parts that a notification names, and ignores metadata of another form', () => {
  const parts = [
    { kind: 'markdown', id: 'half', content: 'Half a sen' },
    { kind: 'systemNotification', content: 'The answer broke off.', _meta: { 'innkeeper.discardedParts': ['half', 'call', 7] } },
    { kind: 'systemNotification', content: 'Other', _meta: { 'innkeeper.discardedParts': 'whole' } },
    { kind: 'markdown', id: 'whole', content: 'A whole sentence.' },
    { kind: 'toolCall', toolCall: { toolCallId: 'call' } },
  ] as unknown as ResponsePart[];
  const discarded = discardedParts(parts);
  expect(parts.map((part) => discarded.has(partId(part)))).toEqual([true, false, false, false, true]);
});
