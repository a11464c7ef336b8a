// The choice of a model and an effort level in a real browser, against the fake host.
//
//   npm run build && node tests/browser-models.mjs
//
// CHROMIUM says which browser to use. Pictures go to tests/out/.

import { strict as assert } from 'node:assert';
import { join } from 'node:path';

import { runTests } from './browser-runner.mjs';
import { finished, fitsScreen, OUT, PAGE_MS, send, waitFor } from './browser-steps.mjs';
import { FakeHost } from './fake-host.mjs';
import { MODELS } from './fake-models.mjs';

const DESKTOP = { viewport: { width: 1200, height: 800 } };
const PHONE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
const LOOKS = [
  ['light', { ...DESKTOP, colorScheme: 'light' }],
  ['dark', { ...DESKTOP, colorScheme: 'dark' }],
  ['phone', { ...PHONE, colorScheme: 'light' }],
  ['phone-dark', { ...PHONE, colorScheme: 'dark' }],
];
const OPUS_MAX = { id: 'claude-opus-4.6', config: { thinkingLevel: 'max' } };

const picker = (page) => page.locator('.model-button');
const menu = (page) => page.getByRole('menu', { name: 'Model' });
const item = (page, name) => menu(page).getByRole('menuitemradio', { name });
const lastSession = () => [...fake.sessions.values()].at(-1);

/** The menu is inside of the window. */
async function menuFits(page, name) {
  const box = await page.locator('.picker-menu').boundingBox();
  const { width } = page.viewportSize();
  assert.ok(box.x >= 0 && box.y >= 0 && box.x + box.width <= width, `the menu of ${name}: ${JSON.stringify(box)}`);
}

const tests = {
  async 'a model and an effort level are chosen with the keyboard, and stay after a reload'({ page }) {
    await send(page, '#demo\ntext First.');
    await finished(page, 'complete');
    await picker(page).focus();
    await page.keyboard.press('Enter');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await picker(page).filter({ hasText: 'Claude Opus 4.6' }).waitFor({ timeout: PAGE_MS });
    await page.keyboard.press('Enter');
    await page.keyboard.press('End');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Model: Claude Opus 4.6, Maximum effort' }).waitFor({ timeout: PAGE_MS });
    await waitFor(() => lastSession().chat.draft?.model?.config?.thinkingLevel === 'max');
    await page.reload();
    await picker(page).filter({ hasText: 'Claude Opus 4.6Maximum' }).waitFor({ timeout: PAGE_MS });
    await send(page, '#demo\ntext Second.');
    await waitFor(() => lastSession().chat.turns.length === 2);
    assert.deepEqual(lastSession().chat.turns[1].message.model, OPUS_MAX);
    await page.reload();
    await picker(page).filter({ hasText: 'Claude Opus 4.6Maximum' }).waitFor({ timeout: PAGE_MS });
  },

  async 'a page follows the model that another page sent a message with'({ page, openPage }) {
    await send(page, '#demo\ntext First.');
    await finished(page, 'complete');
    const second = await openPage(page.url());
    await second.locator('.turn').waitFor({ timeout: PAGE_MS });
    await picker(second).click();
    await item(second, /^Claude Haiku/).click();
    await send(second, '#demo\ntext Second.');
    await picker(page).filter({ hasText: 'Claude Haiku 4.5' }).waitFor({ timeout: PAGE_MS });
  },

  async 'a model that is no longer listed is replaced with a hint'({ page }) {
    await picker(page).click();
    await item(page, /^Claude Opus/).click();
    await send(page, '#demo\ntext First.');
    await finished(page, 'complete');
    fake.setModels(MODELS.filter(({ id }) => id !== OPUS_MAX.id));
    try {
      await page.locator('#composer-hint', { hasText: 'claude-opus-4.6 is no longer offered' }).waitFor({ timeout: PAGE_MS });
      await page.screenshot({ path: join(OUT, 'models-unlisted.png') });
      await page.setViewportSize(PHONE.viewport);
      await page.locator('.sidebar').waitFor({ state: 'hidden', timeout: PAGE_MS });
      await fitsScreen(page, 'the hint');
      await page.screenshot({ path: join(OUT, 'models-unlisted-phone.png') });
      await send(page, '#demo\ntext Second.');
      await waitFor(() => lastSession().chat.turns.length === 2);
      assert.equal(lastSession().chat.turns[1].message.model.id, 'default');
    } finally {
      fake.setModels(MODELS);
    }
  },

  async 'the menu fits the window with many models and long names'({ openPage }) {
    const many = Array.from({ length: 30 }, (_, index) => ({
      ...MODELS[2],
      id: `m${index}`,
      name: `A model with a rather long name ${index}`,
    }));
    fake.setModels([...MODELS, ...many]);
    try {
      const page = await openPage(fake.page, PHONE);
      await picker(page).click();
      await item(page, /^Claude Opus/).click();
      await picker(page).click();
      await menuFits(page, 'a phone');
      await item(page, 'Maximum').click({ timeout: PAGE_MS });
      await picker(page).click();
      await item(page, /long name 29/).click({ timeout: PAGE_MS });
      await fitsScreen(page, 'the page');
      await page.screenshot({ path: join(OUT, 'models-long.png') });
    } finally {
      fake.setModels(MODELS);
    }
  },

  async 'pictures of the menu fit the screen'({ openPage }) {
    for (const [name, options] of LOOKS) {
      const page = await openPage(fake.page, options);
      await picker(page).click();
      await item(page, /^Claude Opus/).click();
      await picker(page).click();
      await item(page, 'High').click();
      await picker(page).click();
      await menuFits(page, name);
      await fitsScreen(page, name);
      await page.screenshot({ path: join(OUT, `models-${name}.png`) });
    }
  },
};

let fake;
await runTests(tests, async () => {
  fake = await new FakeHost().listen();
  return { page: fake.page, stderr: () => '', stop: () => fake.close() };
});
