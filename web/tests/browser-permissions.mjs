// Permission requests, plans, questions, modes and to-do lists in a real browser, against the fake host.
//
//   npm run build && node tests/browser-permissions.mjs
//
// CHROMIUM says which browser to use. Pictures go to tests/out/.

import { strict as assert } from 'node:assert';
import { join } from 'node:path';

import { runTests } from './browser-runner.mjs';
import { finished, fitsScreen, OUT, PAGE_MS, send, waitFor } from './browser-steps.mjs';
import { FakeHost } from './fake-host.mjs';

const DESKTOP = { viewport: { width: 1200, height: 800 } };
const PHONE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
const LOOKS = [
  ['light', { ...DESKTOP, colorScheme: 'light' }],
  ['dark', { ...DESKTOP, colorScheme: 'dark' }],
  ['phone', { ...PHONE, colorScheme: 'light' }],
];

const RUN = {
  toolName: 'Bash',
  title: 'Run this command?',
  message: 'Run `npm test -- --run`',
  input: 'npm test -- --run',
  intention: 'Run the unit tests of the page',
  editable: true,
  meta: {
    layer: 'mode: ask first',
    reason: 'No rule allows this command, and the mode asks before commands.',
    rules: ['Bash(npm test:*)'],
    suggestedBy: 'agent',
  },
};
const EDIT = {
  toolName: 'Edit',
  title: 'Change this file?',
  message: 'Edit [src/page.ts](file:///inn/src/page.ts)',
  input: JSON.stringify({
    file_path: '/inn/src/page.ts',
    old_string: "const name = 'inn';\nexport default name;",
    new_string: Array.from({ length: 30 }, (_, index) => `export const line${index} = ${index};`).join('\n'),
    replace_all: false,
  }),
  meta: { layer: 'protected path', reason: 'The file is a protected path.', rules: ['Edit(src/page.ts)'] },
};
const PLAN = {
  toolName: 'ExitPlanMode',
  displayName: 'Plan',
  title: 'Approve this plan?',
  message: '',
  input:
    '# Add a cellar\n\nThe inn has no cellar yet.\n\n1. Read `src/inn.rs`\n2. Write the cellar **with tests**\n3. Run `cargo test`\n\n' +
    '| file | change |\n|---|---|\n| src/inn.rs | a new module |\n| src/cellar.rs | the cellar |\n',
  plan: true,
};
const QUESTIONS = {
  id: 'q',
  message: 'Two questions about the **cellar**.',
  questions: [
    {
      id: 'depth',
      kind: 'single-select',
      title: 'Depth',
      message: 'How deep shall the cellar be?',
      required: true,
      options: [
        { id: '2', label: 'Two metres', description: 'Dry and cheap', recommended: true },
        { id: '5', label: 'Five metres' },
      ],
    },
    { id: 'note', kind: 'text', message: 'Anything else?' },
  ],
};
const TODO = [
  { text: 'Read the code', status: 'completed' },
  { text: 'Write the cellar with tests', status: 'in_progress' },
  { text: 'Run all checks', status: 'pending' },
];
const DENIED_BY_RULE = { code: 'denied', message: 'Denied by the workspace rule Bash(rm:*).' };
const OUTCOMES = [
  { toolName: 'Read', message: 'Read `src/inn.rs`', result: { success: true, pastTenseMessage: 'Read `src/inn.rs`' } },
  {
    toolName: 'Bash',
    message: 'Run `cargo test`',
    result: { success: false, pastTenseMessage: 'Ran `cargo test`', error: { message: 'exit code 101' } },
  },
  { toolName: 'Bash', message: 'Run `rm -rf /inn`', result: { success: false, pastTenseMessage: 'Denied', error: DENIED_BY_RULE } },
];
const LONG_TEXT = Array.from({ length: 60 }, (_, index) => `Paragraph ${index} of a long answer.`).join('<br>');

const permit = (...calls) => `permit ${JSON.stringify(calls)}`;
const cards = (page) => page.locator('.request');
const card = (page, index = 0) => cards(page).nth(index);
const choice = (page, name, index = 0) => card(page, index).getByRole('button', { name, exact: true });

async function ask(page, ...lines) {
  await send(page, `#demo\n${lines.join('\n')}`);
  await page.locator('[data-open-request]').first().waitFor({ timeout: PAGE_MS });
}

/** Presses a button until the press counts: the buttons ignore a press while they have just appeared or moved. */
async function press(page, name, index = 0) {
  const before = await card(page).getAttribute('data-open-request');
  await waitFor(async () => {
    const current = await card(page)
      .getAttribute('data-open-request', { timeout: 100 })
      .catch(() => null);
    if (current !== before) return true;
    await choice(page, name, index).click();
    return false;
  });
}

/** Waits until a press on the first card counts. */
const ready = (page) => page.locator('.choices[data-ready]').first().waitFor({ timeout: PAGE_MS });

/** Presses the first button of the first card from inside the page, as soon as there are so many cards. */
async function pressWhen(page, count) {
  await page.evaluate((wanted) => {
    const observer = new MutationObserver(() => {
      if (document.querySelectorAll('.request').length !== wanted) return;
      observer.disconnect();
      document.querySelector('.request .choices button').click();
    });
    observer.observe(document.body, { subtree: true, childList: true });
  }, count);
}

/** What the tool calls came to. */
const outcomes = (page) => page.$$eval('.tool', (rows) => rows.map((row) => row.dataset.outcome));

const tests = {
  async 'a command is allowed with the keyboard, and the focus goes on to the message box'({ page }) {
    await ask(page, permit(RUN), 'text After the command');
    await waitFor(async () => (await page.title()).startsWith('Waiting for you'));
    await page.getByRole('group', { name: 'Run this command?' }).waitFor();
    await page.getByRole('button', { name: 'Go to the request' }).focus();
    await page.keyboard.press('Enter');
    assert.equal(await choice(page, 'Allow once').evaluate((element) => element === document.activeElement), true);
    await ready(page);
    await page.keyboard.press('Enter');
    await finished(page, 'complete');
    assert.equal(await cards(page).count(), 0);
    assert.equal(await page.evaluate(() => document.activeElement?.id), 'composer');
  },

  async 'the focus goes to the next request, but not to a button that would allow it'({ page }) {
    await ask(page, permit(RUN, RUN), 'text After both');
    await choice(page, 'Allow once').focus();
    await ready(page);
    await page.keyboard.press('Enter');
    await waitFor(async () => (await cards(page).count()) === 1);
    assert.equal(await card(page).evaluate((element) => element === document.activeElement), true);
    await ready(page);
    await page.keyboard.press('Enter');
    await press(page, 'Deny');
    await finished(page, 'complete');
    assert.deepEqual(await outcomes(page), ['done', 'denied'], 'the second Enter allowed the second request');
  },

  async 'a press at the moment when the card appears does nothing'({ page }) {
    await pressWhen(page, 1);
    await ask(page, permit(RUN));
    await page.getByText('Press again').waitFor({ timeout: PAGE_MS });
    assert.equal(await cards(page).count(), 1);
  },

  async 'a press on a second card that moved under the pointer does nothing'({ page }) {
    await ask(page, permit(RUN, EDIT));
    await waitFor(async () => (await cards(page).count()) === 2);
    await pressWhen(page, 1);
    await press(page, 'Deny');
    await page.getByText('Press again').waitFor({ timeout: PAGE_MS });
    await press(page, 'Allow once');
    await finished(page, 'complete');
    assert.deepEqual(await outcomes(page), ['denied', 'done']);
  },

  async 'two pages show the same card, the first answer counts, and the slower page is told'({ page, openPage }) {
    await ask(page, permit(RUN), 'text After the answer');
    let held = false;
    let release;
    const waiting = [];
    const second = await openPage(page.url(), {}, (socket) => {
      const server = socket.connectToServer();
      server.onMessage((message) => (held ? waiting.push(message) : socket.send(message)));
      socket.onMessage((message) => server.send(message));
      release = () => {
        held = false;
        for (const message of waiting.splice(0)) socket.send(message);
      };
    });
    await card(second).waitFor({ timeout: PAGE_MS });
    await ready(second);
    held = true;
    await press(page, 'Allow for this session');
    await finished(page, 'complete');
    await choice(second, 'Deny').click();
    await waitFor(() => waiting.some((message) => String(message).includes('rejectionReason')));
    release();
    await finished(second, 'complete');
    assert.equal(await cards(second).count(), 0);
    assert.equal(await second.innerText('.notice span'), 'Another client answered first: Allow for this session.');
    assert.match(await second.innerText('.tool-reason'), /Answered in another client: Allow for this session/);
    assert.equal(await page.locator('.notice').count(), 0);
    await second.screenshot({ path: join(OUT, 'permission-second.png') });
  },

  async 'a command is edited and denied with a reason'({ page }) {
    await ask(page, permit(RUN, RUN), 'text After the edit');
    await choice(page, 'Edit').click();
    await page.getByLabel('Input').fill('npm test -- --run tests/unit');
    await page.screenshot({ path: join(OUT, 'permission-edit.png') });
    await press(page, 'Allow once');
    await page.getByRole('button', { name: 'Deny with a reason…' }).click();
    await page.getByLabel('Why not').fill('Once is enough');
    await page.screenshot({ path: join(OUT, 'permission-reason.png') });
    await press(page, 'Deny');
    await finished(page, 'complete');
    await page.locator('.tool summary').first().click();
    assert.match(await page.locator('.tool-body').first().innerText(), /tests\/unit/);
    assert.match(await page.locator('.tool-reason').innerText(), /Once is enough/);
  },

  async 'a request appears without moving the text that is being read, and keeps its place'({ page }) {
    await send(page, `#demo\nchunk 9000\ntext ${LONG_TEXT}\nwait 1500\n${permit(RUN)}\ntext ${LONG_TEXT}`);
    await page.locator('.markdown', { hasText: 'Paragraph 59' }).waitFor({ timeout: PAGE_MS });
    await page.$eval('.scroller', (scroller) => (scroller.scrollTop = 200));
    const place = () => page.$eval('.turn .markdown', (text) => Math.round(text.getBoundingClientRect().top));
    const before = await place();
    await card(page).waitFor({ timeout: PAGE_MS });
    assert.equal(await place(), before);
    await page.screenshot({ path: join(OUT, 'permission-below.png') });
    await page.locator('.to-end', { hasText: 'Waiting for you' }).click();
    await ready(page);
    assert.equal(await choice(page, 'Allow once').isVisible(), true);
    const top = () => card(page).evaluate((element) => Math.round(element.getBoundingClientRect().top));
    const shown = await top();
    const { resource, activeTurn } = [...fake.sessions.values()].at(-1).chat;
    for (let index = 0; index < 20; index++) {
      const part = { kind: 'markdown', id: `extra-${index}`, content: `Another agent goes on: ${index}` };
      activeTurn.responseParts.push(part);
      fake.publish(resource, { type: 'chat/responsePart', turnId: activeTurn.id, part });
    }
    await page.getByText('goes on: 19').waitFor({ state: 'attached', timeout: PAGE_MS });
    assert.equal(await top(), shown, 'the card moved');
    await press(page, 'Allow once');
    await finished(page, 'complete');
  },

  async 'a turn that starts again keeps its first part, and the page shows what follows'({ page }) {
    await send(page, '#demo\ntext The beginning stays.\nthink Half a tho\ntext Half a sen\nrestart\ntext A whole sentence.');
    await finished(page, 'complete');
    assert.equal(await page.locator('details.thinking').count(), 0);
    assert.equal((await page.locator('.markdown').allInnerTexts()).join('|'), 'The beginning stays.|A whole sentence.');
  },

  async 'the activity of the agent is shown, without moving the text'({ page }) {
    await send(page, '#demo\ntext Something first.\nwait 1200\nactivity The model is overloaded (529). Retry 3 of 10 in 8 s.\nwait 1500');
    await page.locator('.markdown', { hasText: 'Something first.' }).waitFor({ timeout: PAGE_MS });
    const place = () => page.$eval('.turn .markdown', (text) => Math.round(text.getBoundingClientRect().top));
    const before = await place();
    await page.locator('.working', { hasText: 'Retry 3 of 10 in 8 s.' }).waitFor({ timeout: PAGE_MS });
    assert.equal(await place(), before);
    await finished(page, 'complete');
  },

  async 'a required question is marked, and an address is opened only by a click'({ openPage, host }) {
    for (const [name, options] of LOOKS) {
      const page = await openPage(host.page, options);
      await ask(
        page,
        `ask ${JSON.stringify(QUESTIONS)}`,
        `ask ${JSON.stringify({ id: 'u', message: 'Sign in to go on.', url: 'https://example.com/login?next=cellar' })}`,
      );
      assert.equal(await page.getByRole('button', { name: /^Submit/ }).isDisabled(), true);
      await page.locator('.option', { hasText: 'Two metres' }).click();
      await page.screenshot({ path: join(OUT, `question-${name}.png`) });
      await fitsScreen(page, `the question (${name})`);
      await page.getByRole('button', { name: 'Submit and skip 1 question' }).click();
      const link = page.getByRole('link', { name: /example\.com/ });
      await link.waitFor({ timeout: PAGE_MS });
      assert.deepEqual(await link.evaluate((each) => [each.target, each.rel]), ['_blank', 'noopener noreferrer']);
      await page.screenshot({ path: join(OUT, `address-${name}.png`) });
      await page.getByRole('button', { name: 'Continue' }).click();
      await finished(page, 'complete');
    }
  },

  async 'the mode is chosen for a new session and changed in a running one'({ openPage, host }) {
    for (const [name, options] of LOOKS) {
      const page = await openPage(host.page, options);
      await page.getByRole('button', { name: 'Permission mode: Ask first' }).click();
      await page.screenshot({ path: join(OUT, `mode-${name}.png`) });
      await fitsScreen(page, `the mode menu (${name})`);
      await page.getByRole('menuitemradio', { name: /^Plan/ }).click();
      await send(page, '#demo\ntext Begin\nwait 60000');
      await page.locator('.markdown', { hasText: 'Begin' }).waitFor({ timeout: PAGE_MS });
      await page.getByRole('button', { name: 'Permission mode: Plan' }).focus();
      await page.keyboard.press('Enter');
      await page.keyboard.press('End');
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'Permission mode: Bypass permissions' }).waitFor({ timeout: PAGE_MS });
      await page.screenshot({ path: join(OUT, `mode-bypass-${name}.png`) });
      await page.getByRole('button', { name: 'Stop', exact: true }).click();
      await finished(page, 'cancelled');
    }
  },

  async 'permission cards, plans and outcomes look right in light, dark and narrow'({ openPage, host }) {
    for (const [name, options] of LOOKS) {
      const page = await openPage(host.page, options);
      const calls = OUTCOMES.map((each) => `called ${JSON.stringify(each)}`);
      await ask(page, `todo ${JSON.stringify(TODO)}`, 'text I look at the tests first.', permit(RUN), permit(EDIT), permit(PLAN), ...calls);
      await page.screenshot({ path: join(OUT, `permission-${name}.png`) });
      await fitsScreen(page, `the permission card (${name})`);
      await smallTargets(page, name);
      await press(page, 'Deny');
      await card(page).getByText('Change this file?').waitFor({ timeout: PAGE_MS });
      await ready(page);
      await page.screenshot({ path: join(OUT, `permission-diff-${name}.png`) });
      await fitsScreen(page, `the diff (${name})`);
      await press(page, 'Allow once');
      await card(page).getByText('Approve this plan?').waitFor({ timeout: PAGE_MS });
      await page.locator('.todo summary').click();
      await ready(page);
      await page.screenshot({ path: join(OUT, `plan-${name}.png`) });
      await fitsScreen(page, `the plan (${name})`);
      await card(page).getByRole('textbox').fill('Write the tests first.');
      await press(page, 'Keep planning');
      await finished(page, 'complete');
      await page.screenshot({ path: join(OUT, `outcomes-${name}.png`) });
      await fitsScreen(page, `the outcomes (${name})`);
      assert.deepEqual(await outcomes(page), ['denied', 'done', 'denied', 'done', 'failed', 'denied']);
    }
  },

  async 'a session that waits says since when in the list'({ page }) {
    await ask(page, permit(RUN));
    const session = [...fake.sessions.values()].at(-1);
    const _meta = { 'innkeeper.waitingSince': new Date(Date.now() - 300_000).toISOString(), 'innkeeper.todo': { done: 1, total: 3 } };
    fake.notifyRoot('root/sessionSummaryChanged', { session: session.uri, changes: { _meta } });
    await page.locator('.row[aria-current=page]', { hasText: 'Waiting for you since 5 min · 1/3 done' }).waitFor({ timeout: PAGE_MS });
    await page.screenshot({ path: join(OUT, 'waiting.png') });
  },
};

/** On a touch screen the buttons that answer are at least 44 pixels high. */
async function smallTargets(page, name) {
  if (name !== 'phone') return;
  const heights = await page.$$eval('.choices button', (buttons) => buttons.map((each) => each.getBoundingClientRect().height));
  assert.ok(Math.min(...heights) >= 44, `heights of the buttons: ${heights}`);
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
