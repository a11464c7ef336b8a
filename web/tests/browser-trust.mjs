// The question whether a folder is trusted, which the host asks before it starts a runtime there.

import { strict as assert } from 'node:assert';
import { existsSync } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { ANSWER_MS, chooseDirectory, finished, fitsScreen, OUT, PAGE_MS, send, waitFor } from './browser-steps.mjs';

const PHONE = { viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true };

export const trustTests = {
  async 'a folder with hooks is asked about, and nothing runs when it is not trusted'({ page, openPage, scratch }) {
    const { folder, mark } = await folderWithHook(scratch, 'untrusted');
    await ask(page, folder);
    assert.match(await page.innerText('form.question'), new RegExp(`touch ${mark}[^]*Trust this folder\\?`));
    assert.equal(await page.getByRole('button', { name: 'Submit' }).isDisabled(), true);
    await page.locator('.row[aria-current=page]', { hasText: 'Waiting for you' }).waitFor({ timeout: PAGE_MS });
    const phone = await openPage(page.url(), PHONE);
    await phone.waitForSelector('form.question', { timeout: PAGE_MS });

    await page.getByRole('radio', { name: 'Trust this folder' }).focus();
    await page.keyboard.press('ArrowUp');
    const chosen = phone.getByRole('radio', { name: 'Continue without its settings' });
    await waitFor(() => chosen.isChecked());
    await page.screenshot({ path: join(OUT, 'question.png') });
    await phone.screenshot({ path: join(OUT, 'question-phone.png') });
    await fitsScreen(phone, 'the question');

    await page.keyboard.press('Enter');
    for (const each of [page, phone]) {
      await each.waitForSelector('[data-response=accept]', { timeout: PAGE_MS });
      assert.equal(await each.innerText('.answer'), 'Continue without its settings');
      assert.equal(await each.locator('form.question').count(), 0);
      await finished(each, 'complete');
      await each.locator('.markdown', { hasText: 'After the question' }).waitFor();
      assert.equal(await each.locator('.notice').count(), 0);
    }
    assert.equal(existsSync(mark), false, 'the hook ran');
    await page.screenshot({ path: join(OUT, 'question-answered.png') });
  },

  async 'the hooks of a folder run after it was trusted'({ openPage, host, scratch }) {
    const page = await openPage(host.page, { colorScheme: 'dark' });
    const { folder, mark } = await folderWithHook(scratch, 'trusted');
    await ask(page, folder);
    await page.getByText('Use its settings').click();
    await page.screenshot({ path: join(OUT, 'question-dark.png') });
    assert.equal(existsSync(mark), false, 'the hook ran before the answer');
    await page.getByRole('button', { name: 'Submit' }).click();
    await finished(page, 'complete');
    assert.equal(existsSync(mark), true, 'the hook did not run');
  },

  async 'Cancel ends the turn, and the question says so'({ page, scratch }) {
    const { folder, mark } = await folderWithHook(scratch, 'cancelled');
    await ask(page, folder);
    await page.getByRole('button', { name: 'Cancel', exact: true }).click();
    await finished(page, 'cancelled');
    assert.equal(await page.innerText('.answer'), 'Cancelled');
    assert.equal(existsSync(mark), false, 'the hook ran');
  },
};

/** A folder whose settings run a command when a session starts; the command creates the file `mark`. */
async function folderWithHook(scratch, name) {
  const folder = join(scratch, name);
  const mark = join(scratch, `${name}-ran`);
  const hooks = { SessionStart: [{ hooks: [{ type: 'command', command: `touch ${mark}` }] }] };
  await mkdir(join(folder, '.claude'), { recursive: true });
  await writeFile(join(folder, '.claude/settings.json'), JSON.stringify({ hooks }));
  return { folder, mark };
}

/** Sends a message to a new session in the folder, and waits for the question. */
async function ask(page, folder) {
  await chooseDirectory(page, folder);
  await send(page, '#demo\ntext After the question');
  await page.waitForSelector('form.question', { timeout: ANSWER_MS });
}
