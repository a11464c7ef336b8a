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

/** Pastes a file into the input box, or drops it there. */
export function give(page, type, { name, contentType, base64 }) {
  return page.$eval(
    '#composer',
    (box, file) => {
      const data = new DataTransfer();
      const bytes = Uint8Array.from(atob(file.base64), (each) => each.charCodeAt(0));
      data.items.add(new File([bytes], file.name, { type: file.contentType }));
      const options = { bubbles: true, cancelable: true };
      if (file.type === 'paste') box.dispatchEvent(new ClipboardEvent('paste', { ...options, clipboardData: data }));
      else for (const each of ['dragover', 'drop']) box.dispatchEvent(new DragEvent(each, { ...options, dataTransfer: data }));
    },
    { type, name, contentType, base64 },
  );
}

/** An image of one pixel. */
export const PIXEL = {
  name: 'pixel.png',
  contentType: 'image/png',
  base64: 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
};

/** Chooses the directory of a new session. The host's default can arrive between the two steps of a fill, which then appends. */
export async function chooseDirectory(page, folder) {
  const field = page.getByLabel('Working directory');
  do {
    await field.fill(folder);
  } while ((await field.inputValue()) !== folder);
}
