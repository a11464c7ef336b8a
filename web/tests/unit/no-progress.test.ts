// The page recognises the activity text of an agent that may hang. The host's driver writes that text.

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';

import { NO_PROGRESS } from '../../src/components/TurnView';

it('recognises the text of the driver', async () => {
  const driver = await readFile(join(import.meta.dirname, '../../../crates/agents/src/claude/driver/progress.rs'), 'utf8');
  const texts = [...driver.matchAll(/format!\("([^"]*)"/g)].map((match) => match[1] ?? '');
  expect(texts.filter((text) => NO_PROGRESS.test(text))).not.toEqual([]);
});
