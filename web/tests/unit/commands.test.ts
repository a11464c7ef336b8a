import { expect, it } from 'vitest';

import { isCommand } from '../../src/page/commands';

it('tells slash commands from other text', () => {
  for (const text of ['/compact', '/nosuch thing', '/plugin:do-it now', '/cost\n']) expect(isCommand(text), text).toBe(true);
  for (const text of ['', '/', '/ x', '/etc/hosts is wrong', 'see /compact', '/über']) expect(isCommand(text), text).toBe(false);
});
