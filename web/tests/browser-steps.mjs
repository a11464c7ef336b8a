// Steps that the browser tests share.

import { strict as assert } from 'node:assert';
import { fileURLToPath } from 'node:url';

/** Where pictures go. */
export const OUT = fileURLToPath(new URL('./out/', import.meta.url));
/** A first answer includes the start of a runtime on a machine that may be busy building something else. */
export const ANSWER_MS = 90_000;
export const PAGE_MS = 15_000;

export async function send(page, text) {
  await page.waitForSelector('[data-connection=online]', { state: 'attached', timeout: PAGE_MS });
  await page.fill('#composer', text);
  await page.press('#composer', 'Enter');
}

export async function finished(page, outcome) {
  await page.waitForSelector('.turn[data-turn]:not([data-turn=running])', { timeout: ANSWER_MS });
  const turns = await page.$$eval('.turn', (elements) => elements.map((each) => each.dataset.turn));
  assert.deepEqual([...new Set(turns)], [outcome], await page.innerText('.turns'));
}

export async function waitFor(predicate) {
  const deadline = Date.now() + PAGE_MS;
  while (!(await predicate())) {
    assert.ok(Date.now() < deadline, 'what was waited for did not come');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The page is not wider than the screen. */
export async function fitsScreen(page, name) {
  const [width, visible] = await page.evaluate(() => [document.body.scrollWidth, innerWidth]);
  assert.ok(width <= visible, `${name} is ${width} wide on a screen of ${visible}`);
}

/** Chooses the directory of a new session. The host's default can arrive between the two steps of a fill, which then appends. */
export async function chooseDirectory(page, folder) {
  const field = page.getByLabel('Working directory');
  do {
    await field.fill(folder);
  } while ((await field.inputValue()) !== folder);
}
