// The page while a turn runs and after it failed, in a real browser, against the fake host: steering, the queue, stopping,
// background work and errors.
//
//   npm run build && node tests/browser-turns.mjs
//
// CHROMIUM says which browser to use. Pictures go to tests/out/.

import { strict as assert } from 'node:assert';
import { join } from 'node:path';

import { runTests } from './browser-runner.mjs';
import { finished, fitsScreen, give, OUT, PAGE_MS, PIXEL, send, waitFor } from './browser-steps.mjs';
import { FakeHost } from './fake-host.mjs';

const DESKTOP = { viewport: { width: 1200, height: 800 } };
const PHONE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
const LOOKS = [
  ['light', { ...DESKTOP, colorScheme: 'light' }],
  ['dark', { ...DESKTOP, colorScheme: 'dark' }],
  ['phone', { ...PHONE, colorScheme: 'light' }],
];
const SERVER = { id: 'w1', label: 'Development server', command: 'npm run dev -- --port 4173' };
const AGENT = { id: 'w2', kind: 'subagent', label: 'Review the cellar' };

const queue = (page) => page.getByRole('region', { name: 'Queue' });
const queuedTexts = (page) => queue(page).locator('.queued-text').allInnerTexts();
const userTexts = (page) => page.locator('.turn .user-text').allInnerTexts();
const turnStates = (page) => page.$$eval('.turn', (turns) => turns.map((turn) => turn.dataset.turn));
const focusedLabel = (page) => page.evaluate(() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.id);
const background = (page) => page.locator('.background');
const lastSession = () => [...fake.sessions.values()].at(-1);

/** Starts a turn with these steps. */
async function start(page, ...lines) {
  await send(page, `#demo\n${lines.join('\n')}`);
  await page.locator('.turn').first().waitFor({ timeout: PAGE_MS });
}

async function steer(page, text) {
  await page.fill('#composer', text);
  await page.press('#composer', 'Enter');
}

async function enqueue(page, ...texts) {
  for (const text of texts) {
    await page.fill('#composer', text);
    await page.press('#composer', 'Alt+Enter');
  }
  await waitFor(async () => (await queue(page).locator('[data-queued]').count()) >= texts.length);
}

/** Ends the running turn of the newest session. */
function endTurn() {
  const session = lastSession();
  fake.endTurn(session, { type: 'chat/turnComplete', turnId: session.chat.activeTurn.id, duration: 1 }, 'complete');
}

const tests = {
  async 'pasted and dropped files are attached to the next message and shown as names'({ openPage }) {
    const notes = { name: `notes ${'of a long day '.repeat(8)}.md`, contentType: 'text/markdown', base64: btoa('# Notes') };
    for (const [name, options] of LOOKS) {
      const page = await openPage(fake.page, options);
      await give(page, 'paste', PIXEL);
      await give(page, 'drop', notes);
      const remove = page.getByRole('button', { name: /^Remove / });
      await waitFor(async () => (await remove.count()) === 2);
      await give(page, 'drop', { ...PIXEL, name: 'other.png' });
      await page.getByRole('button', { name: 'Remove other.png' }).click();
      await fitsScreen(page, name);
      await page.screenshot({ path: join(OUT, `attached-${name}.png`) });
      await send(page, '#demo\ntext Seen.');
      await finished(page, 'complete');
      assert.equal(await remove.count(), 0);
      const sent = lastSession().chat.turns[0].message.attachments;
      assert.deepEqual(
        sent.map(({ type, label, contentType, data }) => [type, label, contentType, data]),
        [PIXEL, notes].map((each) => ['embeddedResource', each.name, each.contentType, each.base64]),
      );
      await page.reload();
      await page.locator('.user .attached-name', { hasText: 'pixel.png' }).waitFor({ timeout: PAGE_MS });
      assert.equal(await page.locator('.user img').count(), 0);
      await fitsScreen(page, name);
      await page.screenshot({ path: join(OUT, `attached-${name}-sent.png`) });
    }
  },

  async 'Enter steers the running turn, and the words stay in the turn after a reload'({ page }) {
    await start(page, 'text First.', 'wait 60000');
    await page.locator('.keys', { hasText: 'Enter steers the running turn' }).waitFor({ timeout: PAGE_MS });
    await steer(page, 'Mind the cellar');
    await page.locator('.steering', { hasText: 'Waits for the agent to take it into this turn.' }).waitFor({ timeout: PAGE_MS });
    await waitFor(async () => (await page.inputValue('#composer')) === '');
    await waitFor(() => lastSession().chat.steeringMessage !== undefined);
    fake.turns.takeSteering(lastSession());
    const taken = page.locator('.turn .user', { hasText: 'Steered' });
    await taken.waitFor({ timeout: PAGE_MS });
    await waitFor(async () => (await page.locator('.steering').count()) === 0);
    const order = async () => (await page.locator('.turn').innerText()).replace(/\s+/g, ' ');
    assert.match(await order(), /First\..*Mind the cellar.*Steered/);
    await page.reload();
    await taken.waitFor({ timeout: PAGE_MS });
    assert.match(await order(), /First\..*Mind the cellar.*Steered/);
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    await finished(page, 'cancelled');
  },

  async 'a slash command waits in the queue, because it cannot join the running turn'({ page }) {
    await start(page, 'text First.', 'wait 60000');
    await steer(page, '/compact');
    await waitFor(async () => (await queuedTexts(page)).join() === '/compact');
    assert.equal(await page.locator('.steering').count(), 0);
  },

  async 'a steering message is taken back, a second one joins the first, and a refused one returns'({ page }) {
    await start(page, 'text First.', 'wait 60000');
    await steer(page, 'One');
    await page.locator('.steering .user-text', { hasText: 'One' }).waitFor({ timeout: PAGE_MS });
    await page.waitForFunction(() => document.querySelector('.steering')?.textContent.includes('Take back'));
    await steer(page, 'Two');
    await waitFor(async () => /One\s+Two/.test(await page.locator('.steering').innerText()));
    await page.fill('#composer', 'half a thought');
    await page.getByRole('button', { name: 'Take back' }).click();
    await waitFor(async () => (await page.inputValue('#composer')) === 'One\n\nTwo\n\nhalf a thought');
    await waitFor(async () => (await page.locator('.steering').count()) === 0);
    fake.rejectNext = 'The kitchen is closed';
    await page.press('#composer', 'Enter');
    await page.locator('.notice', { hasText: 'The kitchen is closed' }).waitFor({ timeout: PAGE_MS });
    await waitFor(async () => (await page.inputValue('#composer')) === 'One\n\nTwo\n\nhalf a thought');
  },

  async 'the queue is reordered, edited and emptied with the keyboard'({ page }) {
    await start(page, 'text First.', 'wait 60000');
    await enqueue(page, 'alpha', 'beta', 'gamma');
    assert.deepEqual(await queuedTexts(page), ['alpha', 'beta', 'gamma']);
    await page.getByRole('button', { name: 'Move “gamma” up' }).focus();
    await page.keyboard.press('Enter');
    await waitFor(async () => (await queuedTexts(page)).join() === 'alpha,gamma,beta');
    assert.equal(await focusedLabel(page), 'Move “gamma” up');
    await page.keyboard.press('Alt+ArrowUp');
    await waitFor(async () => (await queuedTexts(page)).join() === 'gamma,alpha,beta');
    assert.equal(await queue(page).getByRole('status').innerText(), 'Moved to place 1 of 3.');
    await page.getByRole('button', { name: 'Edit “alpha”' }).focus();
    await page.keyboard.press('Enter');
    await page.getByLabel('Queued message').fill('ALPHA');
    await page.keyboard.press('Enter');
    await waitFor(async () => (await queuedTexts(page)).join() === 'gamma,ALPHA,beta');
    assert.equal(await focusedLabel(page), 'Edit “ALPHA”');
    await page.getByRole('button', { name: 'Edit “beta”' }).click();
    await page.getByLabel('Queued message').fill('never mind');
    await page.keyboard.press('Escape');
    assert.deepEqual(await queuedTexts(page), ['gamma', 'ALPHA', 'beta']);
    for (const name of ['gamma', 'ALPHA']) {
      await page.getByRole('button', { name: `Remove “${name}”` }).focus();
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: `Remove “${name}”` }).waitFor({ state: 'detached', timeout: PAGE_MS });
    }
    assert.equal(await focusedLabel(page), 'Remove “beta”');
    await page.keyboard.press('Enter');
    await queue(page).waitFor({ state: 'detached', timeout: PAGE_MS });
    assert.equal(await focusedLabel(page), 'Message');
  },

  async 'a message that is sent while it is edited keeps the edited text in the message box'({ page }) {
    await start(page, 'text First.', 'wait 60000');
    await enqueue(page, '#demo');
    await page.getByRole('button', { name: 'Edit “#demo”' }).click();
    await page.getByLabel('Queued message').fill('#demo better');
    endTurn();
    await page.locator('.notice', { hasText: 'left the queue while you edited it' }).waitFor({ timeout: PAGE_MS });
    await waitFor(async () => (await page.inputValue('#composer')) === '#demo better');
    assert.deepEqual(await userTexts(page), ['#demo\ntext First.\nwait 60000', '#demo']);
  },

  async 'a queued message is sent now, or steers the running turn'({ page }) {
    await start(page, 'text First.', 'wait 60000');
    await enqueue(page, 'alpha', '#demo\ntext Now.\nwait 60000', 'gamma');
    await page.getByRole('button', { name: /^Send “#demo/ }).click();
    await page.locator('.markdown', { hasText: 'Now.' }).waitFor({ timeout: PAGE_MS });
    assert.deepEqual(await turnStates(page), ['cancelled', 'running']);
    assert.deepEqual(await queuedTexts(page), ['alpha', 'gamma']);
    await page.getByRole('button', { name: 'Steer with “gamma”' }).click();
    await page.locator('.steering .user-text', { hasText: 'gamma' }).waitFor({ timeout: PAGE_MS });
    await waitFor(async () => (await queuedTexts(page)).join() === 'alpha');
    assert.equal(await page.locator('.notice').count(), 0);
  },

  async 'after a stop the queue is held, can be ordered, and continues on request'({ page }) {
    await start(page, 'text First.', 'wait 60000');
    await enqueue(page, 'alpha', 'beta');
    await steer(page, 'not taken');
    await page.locator('.steering .text-button').waitFor({ timeout: PAGE_MS });
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    await queue(page).getByText('Held after the stop.').waitFor({ timeout: PAGE_MS });
    assert.deepEqual(await queuedTexts(page), ['not taken', 'alpha', 'beta']);
    await page.getByRole('button', { name: 'Move “beta” up' }).click();
    await page.getByRole('button', { name: 'Move “beta” up' }).click();
    assert.deepEqual(await queuedTexts(page), ['beta', 'not taken', 'alpha']);
    assert.deepEqual(await turnStates(page), ['cancelled']);
    await queue(page).getByRole('button', { name: 'Continue' }).click();
    await waitFor(async () => (await turnStates(page)).join() === 'cancelled,complete,complete,complete');
    assert.deepEqual((await userTexts(page)).slice(1), ['beta', 'not taken', 'alpha']);
    await waitFor(async () => (await queue(page).count()) === 0);
  },

  async 'another client sees whose messages wait'({ page, openPage }) {
    await start(page, 'text First.', 'wait 60000');
    const second = await openPage(page.url());
    await second.locator('.turn[data-turn=running]').waitFor({ timeout: PAGE_MS });
    await enqueue(page, 'mine');
    await second.fill('#composer', 'typed by the second');
    await queue(second).getByText('From another client').waitFor({ timeout: PAGE_MS });
    await queue(page).getByText('Yours').waitFor({ timeout: PAGE_MS });
    await page.fill('#composer', 'typed by the first');
    await waitFor(() => lastSession().chat.draft?.text === 'typed by the first');
    assert.equal(await second.inputValue('#composer'), 'typed by the second');
    await second.reload();
    await waitFor(async () => (await second.inputValue('#composer')) === 'typed by the first');
  },

  async 'a single command is stopped and the turn goes on; everything is stopped with the menu'({ page }) {
    const command = { command: 'cargo test', ms: 60000 };
    await start(page, `command ${JSON.stringify(command)}`, 'text After it.', `background ${JSON.stringify(SERVER)}`, 'wait 60000');
    await page.getByRole('button', { name: 'Stop: Run `cargo test`' }).click();
    await page.locator('.markdown', { hasText: 'After it.' }).waitFor({ timeout: PAGE_MS });
    assert.deepEqual(await turnStates(page), ['running']);
    await background(page).waitFor({ timeout: PAGE_MS });
    await page.getByRole('button', { name: 'More ways to stop' }).focus();
    await page.keyboard.press('Enter');
    const menu = page.getByRole('group', { name: 'More ways to stop' });
    assert.match(await menu.innerText(), /The turn “#demo[^]*The command “Development server”/);
    await page.keyboard.press('Escape');
    assert.equal(await focusedLabel(page), 'More ways to stop');
    await page.keyboard.press('Enter');
    await menu.getByRole('button', { name: 'Stop everything' }).click();
    await finished(page, 'cancelled');
    const report = page.locator('.notice.is-report');
    await report.waitFor({ timeout: PAGE_MS });
    assert.equal(await report.locator('span').innerText(), 'Stopped: the turn “#demo”, the command “Development server”.');
    await waitFor(async () => (await background(page).count()) === 0);
    assert.equal(await focusedLabel(page), 'Message');
  },

  async 'background work is listed and stopped, and its end is a turn'({ page }) {
    await start(page, `background ${JSON.stringify(SERVER)}`, `background ${JSON.stringify(AGENT)}`, 'text Started.');
    await finished(page, 'complete');
    await background(page).locator('summary').click();
    assert.match(await background(page).innerText(), /In the background: 2[^]*Development server[^]*npm run dev -- --port 4173/);
    await page.getByRole('button', { name: 'Stop Development server' }).click();
    await waitFor(async () => (await background(page).locator('li').count()) === 1);
    fake.turns.endWork(lastSession(), AGENT.id, 'completed');
    const turn = page.locator('.turn', { hasText: 'Background subagent: Review the cellar' });
    await turn.waitFor({ timeout: PAGE_MS });
    assert.equal(await turn.locator('.user').count(), 0);
    assert.equal(await turn.locator('.work-status').innerText(), 'completed');
    await waitFor(async () => (await background(page).count()) === 0);
  },

  async 'a failed turn is resumed, retried or edited, and the agent is restarted'({ page }) {
    const overloaded = { error: { errorType: 'overloaded', message: 'The model is overloaded. Resume the turn later.' }, resumable: true };
    await start(page, 'text Half an answer.', `fail ${JSON.stringify(overloaded)}`);
    await page.getByRole('button', { name: 'Resume' }).click();
    await waitFor(async () => (await turnStates(page)).join() === 'complete');
    assert.match(await page.locator('.turn').innerText(), /Half an answer\.[^]*overloaded[^]*The turn goes on\./);
    await waitFor(async () => (await page.locator('.error-actions').count()) === 0);

    const failing = `#demo\nfail ${JSON.stringify({ error: { errorType: 'runtime_exited', message: 'Claude exited with code 3.' } })}`;
    await send(page, failing);
    await page.getByRole('button', { name: 'Retry' }).click();
    await waitFor(async () => (await turnStates(page)).join() === 'complete,error,error');
    await waitFor(async () => (await page.locator('.error-actions').count()) === 1);
    await page.fill('#composer', 'typed');
    await page.getByRole('button', { name: 'Edit message' }).click();
    assert.equal(await page.inputValue('#composer'), `${failing}\n\ntyped`);
    await page.getByRole('button', { name: 'Restart Claude' }).click();
    await waitFor(async () => fake.received.some((each) => each.method === 'innkeeper/restartAgent'));
    await page.fill('#composer', '');
  },

  async 'a turn without output can be restarted and resumed'({ page }) {
    await start(page, 'text Begin.', 'activity No output from Claude for 5 minutes; restart it if this continues', 'wait 60000');
    await page.locator('.working').getByRole('button', { name: 'Restart Claude' }).click();
    await finished(page, 'error');
    assert.match(await page.locator('.error-card').innerText(), /Claude was restarted/);
    await page.getByRole('button', { name: 'Resume' }).click();
    await waitFor(async () => (await turnStates(page)).join() === 'complete');
  },

  async 'a host without these requests offers only to stop the turn'({ openPage, host }) {
    const { methods } = fake;
    fake.methods = [];
    try {
      const page = await openPage(host.page);
      await start(page, `background ${JSON.stringify(SERVER)}`, 'command {"command":"cargo test","ms":60000}');
      await background(page).locator('summary').click();
      await page.locator('.tool[data-tool-status=running]').waitFor({ timeout: PAGE_MS });
      assert.deepEqual(await page.getByRole('button', { name: /stop/i }).allInnerTexts(), ['Stop']);
    } finally {
      fake.methods = methods;
    }
  },

  async 'it looks right in light, dark and narrow'({ openPage, host }) {
    for (const [name, options] of LOOKS) {
      const page = await openPage(host.page, options);
      const shot = async (what) => {
        await page.screenshot({ path: join(OUT, `turns-${what}-${name}.png`) });
        await fitsScreen(page, `${what} (${name})`);
      };
      const command = { command: 'cargo test --workspace --all-targets', ms: 60000 };
      const lines = ['text I start the server first.', `background ${JSON.stringify(SERVER)}`, `background ${JSON.stringify(AGENT)}`];
      await start(page, ...lines, `command ${JSON.stringify(command)}`, 'wait 60000');
      await steer(page, 'Use the port of the last run.');
      await waitFor(() => lastSession().chat.steeringMessage !== undefined);
      fake.turns.takeSteering(lastSession());
      await page.locator('.user', { hasText: 'Steered' }).waitFor({ timeout: PAGE_MS });
      await page.getByRole('button', { name: /^Stop: / }).waitFor({ timeout: PAGE_MS });
      await steer(page, 'And open the page when it is ready.');
      await enqueue(page, 'Then write a test for the cellar.', 'A longer message that explains in detail how the cellar has to be dug.');
      await page.fill('#composer', 'Something else');
      await shot('running');
      await touchTargets(page, name);
      await background(page).locator('summary').click();
      await page.getByRole('button', { name: 'More ways to stop' }).click();
      await shot('stop-menu');
      // Two states are enough for the dark colours.
      if (name === 'dark') continue;
      await page.keyboard.press('Escape');
      await page.getByRole('button', { name: /^Edit “Then/ }).click();
      await shot('editing');
      await page.keyboard.press('Escape');
      await page.getByRole('button', { name: 'Stop', exact: true }).click();
      await queue(page).getByText('Held after the stop.').waitFor({ timeout: PAGE_MS });
      await shot('held');
      fake.turns.endWork(lastSession(), SERVER.id, 'failed');
      await page.locator('.work-message').scrollIntoViewIfNeeded({ timeout: PAGE_MS });
      await shot('background');
      await page.goto('about:blank');
      await page.goto(host.page);
      const error = { errorType: 'runtime_exited', message: 'Claude was ended by signal 9, possibly because the memory was used up.' };
      await start(page, 'text Half an answer.', `fail ${JSON.stringify({ error, resumable: true })}`);
      await page.getByRole('button', { name: 'Resume' }).waitFor({ timeout: PAGE_MS });
      await shot('error');
    }
  },
};

/** On a touch screen the buttons are at least 44 pixels high. */
async function touchTargets(page, name) {
  if (name !== 'phone') return;
  const heights = await page.$$eval(':is(.composer-box, .queue, .background, .steering) :is(button, summary), .tool-stop', (elements) =>
    elements.map((each) => [each.textContent || each.ariaLabel, Math.round(each.getBoundingClientRect().height)]),
  );
  const small = heights.filter(([, height]) => height > 0 && height < 44);
  assert.deepEqual(small, []);
}

const fake = await new FakeHost().listen();
await runTests(tests, async () => ({
  page: fake.page,
  stderr: () => '',
  stop: async () => {
    await fake.close();
    return undefined;
  },
}));
