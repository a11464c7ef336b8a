// Steering, the queue, stopping, background commands and errors in the page, with the real host, the real runtime and the
// demo model.

import { strict as assert } from 'node:assert';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { ANSWER_MS, chooseDirectory, OUT, PAGE_MS, send, waitFor } from './browser-steps.mjs';
import { killRuntime } from './kill-runtime.mjs';

const queue = (page) => page.getByRole('region', { name: 'Queue' });
const background = (page) => page.locator('.background');
const states = (page) => page.$$eval('.turn', (turns) => turns.map((turn) => turn.dataset.turn));
const turn = (page, index) => page.locator('.turn').nth(index);
const words = async (locator) => (await locator.innerText()).replace(/\s+/g, ' ');
const shell = (command, more = {}) => `tool Bash ${JSON.stringify({ command, ...more })}`;

/** A command that waits until the test writes the file `gate`. */
const gated = (name) => `touch ${name}.begun; until [ -e ${name}.gate ]; do sleep 0.05; done; sleep 0.3`;

export const realTurnTests = {
  async 'a turn is steered while it writes and while a command runs, and shows it after a reload'({ page, scratch }) {
    const folder = await begin(page, scratch, 'steered', ['text It begins.', 'wait 60000', 'text Never said.']);
    await page.locator('.markdown', { hasText: 'It begins.' }).waitFor({ timeout: ANSWER_MS });
    await type(page, `#demo\n${shell(gated('one'))}\ntext After the command.`, 'Enter');
    await allow(page, () => existsSync(join(folder, 'one.begun')));
    await type(page, 'Prefer short names', 'Enter');
    await page.locator('.steering', { hasText: 'Take back' }).waitFor({ timeout: PAGE_MS });
    await page.screenshot({ path: join(OUT, 'turns-real-steering.png') });
    await writeFile(join(folder, 'one.gate'), '');
    await ended(page, ['complete']);
    const expected = /It begins\..*Steered.*Prefer short names Steered.*After the command\./;
    assert.match(await words(turn(page, 0)), expected);
    assert.doesNotMatch(await words(turn(page, 0).locator('.markdown').first()), /Never said/);
    await page.reload();
    await turn(page, 0).waitFor({ timeout: PAGE_MS });
    assert.match(await words(turn(page, 0)), expected);
  },

  async 'the queue continues by itself, waits after a stop, and one message is sent now'({ page, scratch }) {
    const folder = await begin(page, scratch, 'queued', [shell(gated('two')), 'text One.']);
    await allow(page, () => existsSync(join(folder, 'two.begun')));
    await enqueue(page, '#demo\ntext Two.', '#demo\ntext Three.\nwait 60000');
    await page
      .getByRole('button', { name: /^Move “#demo text Three/ })
      .first()
      .waitFor({ timeout: PAGE_MS });
    await writeFile(join(folder, 'two.gate'), '');
    await page.locator('.markdown', { hasText: 'Three.' }).waitFor({ timeout: ANSWER_MS });
    assert.deepEqual(await states(page), ['complete', 'complete', 'running']);
    await enqueue(page, '#demo\ntext Four.', '#demo\ntext Five.\nwait 60000');
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    await queue(page).getByText('Held after the stop.').waitFor({ timeout: PAGE_MS });
    await page.screenshot({ path: join(OUT, 'turns-real-held.png') });
    await page.getByRole('button', { name: /^Send “#demo text Five/ }).click();
    await page.locator('.markdown', { hasText: 'Five.' }).waitFor({ timeout: ANSWER_MS });
    await page.getByRole('button', { name: /^Send “#demo text Four/ }).click();
    await ended(page, ['complete', 'complete', 'cancelled', 'cancelled', 'complete']);
    assert.match(await words(turn(page, 4)), /Four\./);
    assert.equal(await page.locator('.notice').count(), 0);
  },

  async 'a command is stopped alone, background work is listed and stopped, and everything is stopped'({ page, scratch }) {
    const script = [
      shell('touch three.begun; sleep 120'),
      shell('sleep 120', { run_in_background: true, description: 'Sleep in the background' }),
      'text Both are over.',
      'wait 60000',
    ];
    const folder = await begin(page, scratch, 'stopped', script);
    await allow(page, () => existsSync(join(folder, 'three.begun')));
    const stop = page.getByRole('button', { name: /^Stop: / });
    await stop.waitFor({ timeout: PAGE_MS });
    await stop.click();
    await allow(page, async () => (await page.locator('.markdown', { hasText: 'Both are over.' }).count()) > 0);
    assert.deepEqual(await states(page), ['running'], 'the turn was stopped with the command');
    await background(page).locator('summary').click({ timeout: PAGE_MS });
    await page.screenshot({ path: join(OUT, 'turns-real-background.png') });
    await page.getByRole('button', { name: 'More ways to stop' }).click();
    const menu = page.getByRole('group', { name: 'More ways to stop' });
    assert.match(await words(menu), /The turn “.*The command “/);
    await menu.getByRole('button', { name: 'Stop everything' }).click();
    await ended(page, ['cancelled']);
    await page.locator('.notice.is-report', { hasText: /^Stopped: the turn “.*the command “/ }).waitFor({ timeout: PAGE_MS });
    await waitFor(async () => (await background(page).count()) === 0);
  },

  async 'the end of a background command is a turn of its own'({ page, scratch }) {
    const command = shell('sleep 3; echo done', { run_in_background: true, description: 'Sleep for a while' });
    await begin(page, scratch, 'background', [command, 'text It runs.']);
    await allow(page, async () => (await states(page))[0] === 'complete');
    await background(page).waitFor({ timeout: PAGE_MS });
    await page.locator('.work-message').waitFor({ timeout: ANSWER_MS });
    await ended(page, ['complete', 'complete']);
    assert.match(await words(page.locator('.work-message')), /^Background command: .*completed/);
    await waitFor(async () => (await background(page).count()) === 0);
    await page.screenshot({ path: join(OUT, 'turns-real-work.png') });
  },

  async 'a turn that failed is resumed'({ page, scratch }) {
    const folder = await begin(page, scratch, 'failed', ['text Before.', 'wait 4000', 'text After the wait.']);
    await page.locator('.markdown', { hasText: 'Before.' }).waitFor({ timeout: ANSWER_MS });
    await killRuntime(folder);
    await page.getByRole('button', { name: 'Resume' }).waitFor({ timeout: ANSWER_MS });
    await page.screenshot({ path: join(OUT, 'turns-real-error.png') });
    await page.getByRole('button', { name: 'Resume' }).click();
    await ended(page, ['complete']);
  },

  async 'the agent is restarted while a turn runs, and the session goes on'({ page, scratch }) {
    await begin(page, scratch, 'restarted', ['text Begin.', 'wait 60000']);
    await page.locator('.markdown', { hasText: 'Begin.' }).waitFor({ timeout: ANSWER_MS });
    await page.getByRole('button', { name: 'More ways to stop' }).click();
    await page.getByRole('button', { name: 'Restart Claude' }).click();
    await ended(page, ['error']);
    assert.match(await words(turn(page, 0).locator('.error-card')), /Claude was restarted/);
    await page.getByRole('button', { name: 'Resume' }).waitFor({ timeout: PAGE_MS });
    await send(page, '#demo\ntext It answers again.');
    await page.locator('.markdown', { hasText: 'It answers again.' }).waitFor({ timeout: ANSWER_MS });
  },
};

/** Starts a session in a new folder. */
async function begin(page, scratch, name, lines) {
  const folder = join(scratch, `turns-${name}`);
  await mkdir(folder, { recursive: true });
  await chooseDirectory(page, folder);
  await send(page, `#demo\n${lines.join('\n')}`);
  return folder;
}

async function type(page, text, key) {
  await page.fill('#composer', text);
  await page.press('#composer', key);
}

async function enqueue(page, ...texts) {
  const before = await queue(page).locator('[data-queued]').count();
  for (const text of texts) await type(page, text, 'Alt+Enter');
  await waitFor(async () => (await queue(page).locator('[data-queued]').count()) === before + texts.length);
}

/** Allows all requests until the condition is met. */
async function allow(page, isDone) {
  const deadline = Date.now() + ANSWER_MS;
  while (!(await isDone())) {
    assert.ok(Date.now() < deadline, await page.innerText('.turns'));
    const button = page.locator('.choices[data-ready]').getByRole('button', { name: 'Allow once' }).first();
    await button.click({ timeout: 200 }).catch(() => {});
  }
}

async function ended(page, expected) {
  const deadline = Date.now() + ANSWER_MS;
  while ((await states(page)).join() !== expected.join()) {
    assert.ok(Date.now() < deadline, `${await states(page)}\n${await page.innerText('.turns')}`);
    await page.waitForTimeout(100);
  }
}
