// The demo model's tour with the real host: permissions, a question and a plan, answered in the page.

import { strict as assert } from 'node:assert';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';

import { ANSWER_MS, chooseDirectory, fitsScreen, OUT, PAGE_MS, send } from './browser-steps.mjs';

/** More requests than the tour has: it must end. */
const MOST_REQUESTS = 20;

export const tourTests = {
  async 'the tour succeeds when everything is allowed in the page'({ page, scratch }) {
    const folder = await startIn(page, scratch, 'tour', 'tour');
    const answered = await answerAll(page);
    assert.ok(answered.includes('permission'), `no permission was asked: ${answered}`);
    assert.ok(answered.includes('question'), `no question was asked: ${answered}`);
    assert.ok(answered.includes('plan'), `no plan was shown: ${answered}`);
    assert.equal(await page.locator('.turn').last().getAttribute('data-turn'), 'complete');
    assert.ok(existsSync(join(folder, 'innkeeper-tour')), 'the tour wrote no files');
    await page.screenshot({ path: join(OUT, 'tour.png'), fullPage: true });
    await fitsScreen(page, 'the tour');
  },

  async 'a denied write leaves no file, and the row says so'({ page, scratch }) {
    const script = '#demo\ntool Write {"file_path":"denied.txt","content":"x"}\ntext After the denial';
    const folder = await startIn(page, scratch, 'denied', script);
    await page.waitForSelector('.request', { timeout: ANSWER_MS });
    await page.screenshot({ path: join(OUT, 'permission-real.png') });
    await ready(page);
    await page.getByRole('button', { name: 'Deny', exact: true }).click();
    await page.locator('.markdown', { hasText: 'After the denial' }).waitFor({ timeout: ANSWER_MS });
    assert.equal(existsSync(join(folder, 'denied.txt')), false, 'the file was written');
    assert.match(await page.innerText('.turns'), /Denied/);
    await page.screenshot({ path: join(OUT, 'permission-denied-real.png') });
  },
};

/** Starts a session in a new folder. */
async function startIn(page, scratch, name, message) {
  const folder = join(scratch, name);
  await mkdir(folder, { recursive: true });
  await chooseDirectory(page, folder);
  await send(page, message);
  return folder;
}

/** Buttons ignore presses shortly after they have appeared. */
async function ready(page) {
  await page.waitForTimeout(600);
}

/** Allows, answers and approves everything until the turn ends. Returns what was asked. */
async function answerAll(page) {
  const answered = [];
  for (let count = 0; count < MOST_REQUESTS; count++) {
    await page.waitForSelector('.request, form.question, .turn[data-turn]:not([data-turn=running])', { timeout: ANSWER_MS });
    if (await page.locator('form.question').count()) {
      answered.push('question');
      await page.screenshot({ path: join(OUT, 'tour-question.png') });
      await page.getByRole('radio').first().check();
      await page.getByRole('button', { name: 'Submit' }).click();
      await page.locator('form.question').waitFor({ state: 'detached', timeout: PAGE_MS });
    } else if (await page.locator('.request').count()) {
      const plan = page.getByRole('button', { name: 'Approve', exact: true });
      const isPlan = (await plan.count()) > 0;
      answered.push(isPlan ? 'plan' : 'permission');
      const number = answered.length;
      await page.screenshot({ path: join(OUT, `tour-${number}-${isPlan ? 'plan' : 'permission'}.png`) });
      await ready(page);
      const card = await page.locator('.request').first().elementHandle();
      await (isPlan ? plan : page.getByRole('button', { name: 'Allow once' })).first().click();
      await card.waitForElementState('hidden', { timeout: PAGE_MS });
    } else {
      return answered;
    }
  }
  throw new Error(`the tour does not end: ${answered}`);
}
