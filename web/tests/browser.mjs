// The page in a real browser against the real host with its demo model.
//
//   INNKEEPER_BIN=path/to/innkeeper node tests/browser.mjs
//
// INNKEEPER_RUNTIMES_DIR says where installed runtimes are, CHROMIUM which browser to use. The page that is tested
// is the one inside the binary. Pictures go to tests/out/. The fake host stands in for the binary while the page
// is being developed: INNKEEPER_BIN=tests/fake-host.mjs

import { strict as assert } from 'node:assert';
import { join } from 'node:path';

import { realEditTests } from './browser-edits-real.mjs';
import { runTests } from './browser-runner.mjs';
import { ANSWER_MS, finished, fitsScreen, give, OUT, PAGE_MS, PIXEL, send, waitFor } from './browser-steps.mjs';
import { tourTests } from './browser-tour.mjs';
import { trustTests } from './browser-trust.mjs';
import { realTurnTests } from './browser-turns-real.mjs';
import { startHost } from './host-process.mjs';

/** Each test gets a page of its own that is connected to the host. */
const tests = {
  async 'hi is answered, and the session appears in the list'({ page }) {
    await send(page, 'hi');
    await finished(page, 'complete');
    const answer = await page.innerText('.turn .markdown');
    assert.ok(answer.trim().length > 20, `the answer is too short: ${answer}`);
    assert.equal(await page.locator('.user').count(), 1, 'the message is shown once');
    assert.match(await page.innerText('.usage'), /tokens in/);
    await page.waitForSelector('.sessions .row[aria-current=page]');
  },

  async 'the model and the effort level that were chosen answer, and stay after a reload'({ page }) {
    const picker = page.locator('.model-button');
    const item = (name) => page.getByRole('menu', { name: 'Model' }).getByRole('menuitemradio', { name });
    for (const name of [/^Demo model, Sonnet/, 'High']) {
      await picker.click();
      await item(name).click();
    }
    await send(page, 'hi');
    await finished(page, 'complete');
    assert.match(await page.innerText('.usage'), /claude-sonnet/);
    await page.reload();
    await page.getByRole('button', { name: /^Model: Demo model, Sonnet.*, High effort$/ }).waitFor({ timeout: PAGE_MS });
  },

  async 'an image and a text file are sent with a message'({ page }) {
    await give(page, 'paste', PIXEL);
    await give(page, 'drop', { name: 'notes.txt', contentType: 'text/plain', base64: btoa('Notes') });
    await page.getByRole('button', { name: 'Remove notes.txt' }).waitFor({ timeout: PAGE_MS });
    await send(page, 'hi');
    await finished(page, 'complete');
    await page.reload();
    await page.locator('.user .attached-name', { hasText: 'notes.txt' }).waitFor({ timeout: PAGE_MS });
    assert.deepEqual(await page.locator('.user .attached-name').allInnerTexts(), ['pixel.png', 'notes.txt']);
  },

  async 'an answer grows while it is being written'({ page }) {
    await watchText(page);
    // The pauses are longer than a busy machine keeps the browser from drawing.
    const words = 'one two three four five six seven eight nine ten';
    await send(page, `#demo\nchunk 6\ntext ${words}\nwait 2500\ntext ${words}\nwait 2500\ntext the very end`);
    await page.getByRole('button', { name: 'Stop', exact: true }).waitFor({ timeout: ANSWER_MS });
    await finished(page, 'complete');
    const states = await page.evaluate(() => globalThis.seenTexts);
    const final = states.at(-1);
    const between = states.filter((text) => text !== '' && text !== final);
    assert.ok(between.length >= 2, `only ${between.length} states before the last: ${JSON.stringify(states)}`);
    for (let index = 1; index < states.length; index++) {
      assert.ok(states[index].startsWith(states[index - 1].trimEnd()), `text was taken back: ${JSON.stringify(states)}`);
    }
    assert.match(final, /one two[^]*the very end/);
    assert.equal(await page.getByRole('button', { name: 'Stop', exact: true }).count(), 0);
  },

  async 'thinking is folded and can be opened'({ page }) {
    await send(page, '#demo\nthink The guest wants to know what I think\ntext Here is the answer');
    await finished(page, 'complete');
    const thinking = page.locator('details.thinking');
    assert.equal(await thinking.count(), 1);
    assert.equal(await thinking.getAttribute('open'), null, 'it starts folded');
    assert.equal(await page.locator('.thinking-text').isVisible(), false);
    await thinking.locator('summary').click();
    assert.match(await page.locator('.thinking-text').innerText(), /what I think/);
    assert.doesNotMatch(await page.innerText('.markdown'), /what I think/);
  },

  async 'an error of the model is shown as a card'({ page }) {
    await send(page, '#demo\nerror 500 always');
    await finished(page, 'error');
    const card = page.locator('.error-card');
    assert.equal(await card.count(), 1);
    assert.ok((await card.locator('.error-message').innerText()).length > 10);
    await page.screenshot({ path: join(OUT, 'error.png') });
    await send(page, '#demo\ntext Still here');
    await page.locator('.turn').nth(1).locator('.markdown').waitFor({ timeout: ANSWER_MS });
  },

  async 'a tool call is a row that folds out'({ page }) {
    await send(page, '#demo\ntool Read {"file_path":"not-there.txt"}\ntext After the tool');
    await finished(page, 'complete');
    const row = page.locator('details.tool');
    assert.equal(await row.count(), 1);
    assert.match((await row.getAttribute('data-tool-status')) ?? '', /^(completed|cancelled)$/);
    assert.match(await row.locator('summary').innerText(), /Read/);
    assert.equal(await page.locator('.tool-body').isVisible(), false);
    await row.locator('summary').click();
    assert.match(await page.innerText('.tool-body'), /not-there\.txt/);
    await page.locator('.markdown', { hasText: 'After the tool' }).waitFor();
  },

  async 'markup in an answer does nothing'({ page }) {
    const attack = '<img src=x onerror="globalThis.harmed=1"> <script>globalThis.harmed=2</script> [x](javascript:globalThis.harmed=3)';
    await send(page, `#demo\ntext ${attack} <b>end</b>`);
    await finished(page, 'complete');
    assert.match(await page.innerText('.markdown'), /<img src=x[^]*<b>end<\/b>/, 'it is shown as text');
    assert.equal(await page.locator('.turns :is(img, script, iframe, a, b)').count(), 0);
    assert.equal(await page.evaluate(() => globalThis.harmed), undefined);
  },

  async 'deeply nested and unmatched Markdown is rendered within limits, and other sessions go on'({ page, openPage }) {
    await send(page, '#demo\ntext A **calm** session');
    await finished(page, 'complete');
    const calm = page.url();
    await page.getByRole('button', { name: 'New session' }).click();
    const bombs = ['>'.repeat(2000), `${'- '.repeat(2000)}a`, `a ${'*'.repeat(4000)}`];
    await send(page, `#demo\nchunk 500\n${bombs.map((bomb) => `text ${bomb}\ntext end`).join('\n')}`);
    await finished(page, 'complete');
    await nestedAnswerIsShown(page);
    const nested = page.url();
    await page.screenshot({ path: join(OUT, 'nested.png') });
    await page.reload();
    await page.waitForSelector('[data-turn=complete]', { timeout: PAGE_MS });
    await nestedAnswerIsShown(page);
    const second = await openPage(calm);
    await second.locator('.markdown strong', { hasText: 'calm' }).waitFor({ timeout: PAGE_MS });
    await second.goto(nested);
    await nestedAnswerIsShown(second);
    await second.goto(calm);
    await second.locator('.markdown strong', { hasText: 'calm' }).waitFor({ timeout: PAGE_MS });
  },

  async 'a long answer is shown in pieces, and its elements stay when it ends'({ page }) {
    const word = 'x'.repeat(60_000);
    await send(page, `#demo\nchunk 4000\ntext begin ${word}\nwait 2500\ntext the end`);
    await page.locator('.markdown', { hasText: 'begin' }).first().waitFor({ timeout: ANSWER_MS });
    await page.$eval('.markdown .block', (element) => (element.seenBefore = true));
    await finished(page, 'complete');
    assert.equal(await page.$eval('.markdown .block', (element) => element.seenBefore), true);
    assert.match(await page.innerText('.turn > .markdown >> nth=-1'), /the end$/);
    const more = page.locator('.markdown .more');
    assert.match(await more.innerText(), /characters are hidden/);
    await page.screenshot({ path: join(OUT, 'long.png') });
    await fitsScreen(page, 'the page');
    await more.click();
    await waitFor(async () => (await more.count()) === 0);
    await page.reload();
    await page.locator('.markdown', { hasText: 'the end' }).waitFor({ timeout: PAGE_MS });
    const distance = () => page.$eval('.scroller', (each) => each.scrollHeight - each.scrollTop - each.clientHeight);
    await waitFor(async () => (await more.count()) === 1 && (await distance()) < 80);
  },

  async 'a running answer can be stopped'({ page }) {
    await send(page, '#demo\ntext The beginning\nwait 60000\ntext The end');
    await page.locator('.markdown', { hasText: 'The beginning' }).waitFor({ timeout: ANSWER_MS });
    await page.getByRole('button', { name: 'Stop', exact: true }).click();
    await finished(page, 'cancelled');
    assert.equal(await page.innerText('.markdown'), 'The beginning');
  },

  async 'a lost connection comes back by itself and nothing is missing or doubled'({ openPage, host }) {
    const sockets = [];
    const page = await openPage(host.page, {}, (socket) => {
      socket.connectToServer();
      sockets.push(socket);
    });
    await send(page, `#demo\nchunk 4\ntext Before the break.\nwait 1500\ntext ${'and on '.repeat(30)}until the end`);
    await page.locator('.markdown', { hasText: 'Before the break.' }).first().waitFor({ timeout: ANSWER_MS });
    await watchConnection(page);
    await sockets.at(-1).close({ code: 4000 });
    await waitFor(() => page.evaluate(() => globalThis.wasLost));
    assert.match(await page.innerText('.markdown'), /Before the break/, 'what was there stays readable');
    await finished(page, 'complete');
    assert.equal(sockets.length, 2);
    const text = (await page.locator('.markdown').allInnerTexts()).join('\n');
    assert.match(text, /^Before the break\.\s+(and on ){30}until the end$/);
    assert.equal(await page.locator('.user').count(), 1);
  },

  async 'a reload shows the same conversation'({ page }) {
    await send(page, '#demo\ntext Written **down**');
    await finished(page, 'complete');
    const before = await page.innerText('.turns');
    await page.reload();
    await page.waitForSelector('[data-turn=complete]', { timeout: PAGE_MS });
    assert.equal(await page.innerText('.turns'), before);
  },

  async 'a second page sees the session and its answer'({ page, openPage, host }) {
    await send(page, '#demo\ntext Seen by two');
    await finished(page, 'complete');
    const second = await openPage(host.page);
    await second.locator('.sessions .row').first().click();
    await second.locator('.markdown', { hasText: 'Seen by two' }).waitFor({ timeout: PAGE_MS });
  },

  async 'a session is deleted after a question'({ page }) {
    await send(page, '#demo\ntext Soon gone');
    await finished(page, 'complete');
    const rows = await page.locator('.sessions .row').count();
    await page.getByRole('button', { name: 'Delete this session' }).click();
    await page.getByRole('button', { name: 'Keep it' }).click();
    assert.equal(await page.locator('.sessions .row').count(), rows);
    await page.getByRole('button', { name: 'Delete this session' }).click();
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.waitForSelector('.welcome', { timeout: PAGE_MS });
    await waitFor(async () => (await page.locator('.sessions .row').count()) === rows - 1);
  },

  async 'Shift+Enter makes a new line and Enter sends'({ page }) {
    await page.focus('#composer');
    await page.keyboard.type('#demo');
    await page.keyboard.press('Shift+Enter');
    await page.keyboard.type('text Two lines arrived');
    await page.keyboard.press('Enter');
    await page.locator('.markdown', { hasText: 'Two lines arrived' }).waitFor({ timeout: ANSWER_MS });
    assert.equal(await page.inputValue('#composer'), '');
  },

  async 'a wrong token and a missing one say what to do'({ openPage, host }) {
    for (const search of ['?tkn=wrong', '']) {
      const page = await openPage(`${new URL(host.page).origin}/${search}`);
      await page.waitForSelector('.card', { timeout: PAGE_MS });
      assert.match(await page.innerText('.card'), /Open the address that the host printed/);
    }
  },

  async 'the page sends requests to its host only'({ page, host, asked }) {
    await page.waitForSelector('[data-connection=online]', { state: 'attached' });
    const { host: own } = new URL(host.page);
    assert.ok(asked.length > 0);
    assert.deepEqual(
      asked.filter((url) => new URL(url).host !== own),
      [],
    );
  },

  async 'it looks right in light, dark and narrow'({ openPage, host }) {
    const looks = [
      ['page', { colorScheme: 'light', viewport: { width: 1200, height: 800 } }],
      ['page-dark', { colorScheme: 'dark', viewport: { width: 1200, height: 800 } }],
      ['page-phone', { colorScheme: 'light', viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true }],
    ];
    for (const [name, options] of looks) {
      const page = await openPage(host.page, options);
      await page.waitForSelector('[data-connection=online]', { state: 'attached', timeout: PAGE_MS });
      await page.screenshot({ path: join(OUT, `${name}-new.png`) });
      await send(page, 'hi');
      await finished(page, 'complete');
      await page.screenshot({ path: join(OUT, `${name}.png`) });
      await fitsScreen(page, name);
    }
  },

  // The fake host does not ask about folders.
  ...(process.env.INNKEEPER_BIN?.endsWith('.mjs') ? {} : { ...trustTests, ...tourTests, ...realEditTests, ...realTurnTests }),
};

/** The answer with nested Markdown is there up to its end, and the page around it works. */
async function nestedAnswerIsShown(page) {
  await page
    .locator('.markdown', { hasText: /end\s*$/ })
    .last()
    .waitFor({ timeout: PAGE_MS });
  const text = await page.innerText('.turn');
  assert.match(text, />{1000}/);
  assert.match(text, /\*{3000}/);
  assert.ok((await page.locator('.markdown blockquote').count()) > 0, 'quotes are rendered up to a depth');
  assert.ok((await page.locator('.sessions .row').count()) >= 2);
}

/** Notes every different text of the answer from inside the page, where no state can slip through. */
async function watchText(page) {
  await page.evaluate(() => {
    globalThis.seenTexts = [];
    new MutationObserver(() => {
      const text = [...document.querySelectorAll('.turn .markdown')].map((each) => each.textContent).join('\n');
      if (text.trim() !== '' && text !== globalThis.seenTexts.at(-1)) globalThis.seenTexts.push(text);
    }).observe(document.body, { subtree: true, childList: true, characterData: true });
  });
}

/** Notes from inside the page whether its connection was lost, which it may be for a fraction of a second only. */
async function watchConnection(page) {
  await page.evaluate(() => {
    globalThis.wasLost = false;
    new MutationObserver(() => {
      const shown = document.querySelector('[data-connection]');
      globalThis.wasLost ||= shown !== null && shown.getAttribute('data-connection') !== 'online';
    }).observe(document.body, { subtree: true, childList: true, attributeFilter: ['data-connection'] });
  });
}

await runTests(tests, startHost);
