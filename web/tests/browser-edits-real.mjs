// Changed files, diffs and undo in the page, with the real host, the real runtime and the demo model.

import { strict as assert } from 'node:assert';
import { existsSync } from 'node:fs';
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { ANSWER_MS, chooseDirectory, fitsScreen, OUT, PAGE_MS, send, waitFor } from './browser-steps.mjs';
import { startHost } from './host-process.mjs';

const LOOKS = [
  ['light', { colorScheme: 'light', viewport: { width: 1200, height: 800 } }],
  ['dark', { colorScheme: 'dark', viewport: { width: 1200, height: 800 } }],
  ['phone', { colorScheme: 'light', viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true }],
];

const MENU = Array.from({ length: 30 }, (_, index) => `Dish ${index + 1}: soup`)
  .join('\n')
  .concat('\n');
const SECOND = ['Dish 2: soup', 'Dish 2: roast'];
const LATE = ['Dish 28: soup', 'Dish 28: cake'];
const GUESTS = 'alpha\nbeta\ngamma\n';
const PICTURE = Buffer.from([0, 159, 146, 150, 10, 255]);

const list = (page) => page.locator('.changes');
const view = (page) => page.getByRole('region', { name: 'Changes' });
const file = (place, name) => place.locator(`.file[data-file$="/${name}"]`);
const toggle = (place, name) => file(place, name).locator('.file-toggle');
const changesButton = (page) => page.locator('.changes-button');
const currentRow = (page) => page.locator('.sessions .row[aria-current=page] .row-detail');
const text = async (locator) => (await locator.innerText()).replace(/\s+/g, ' ').trim();
const tool = (name, input) => `tool ${name} ${JSON.stringify(input)}`;

export const realEditTests = {
  async 'edits by tools and commands are listed, and undone in every scope'({ page, openPage, scratch }) {
    const folder = await inn(scratch, 'edits');
    const read = (name) => readFile(join(folder, name), 'utf8');
    const shown = await changeEverything(page, folder);
    assert.match(shown[0], /menu\.txt[^]*Dish 2: soup[^]*Dish 2: roast/, 'the request shows no diff');

    const names = ['guests.txt', 'made.txt', 'menu.txt', 'picture.bin', 'visits.txt'];
    await countsAre(page, 5, '+5', '−3');
    assert.deepEqual((await list(page).locator('.file-name').allInnerTexts()).sort(), names);
    assert.match(await text(toggle(list(page), 'guests.txt')), /shell \+1 .*−1/);
    assert.match(await text(toggle(list(page), 'picture.bin')), /binary shell/);
    assert.match(await text(toggle(list(page), 'made.txt')), /created \+1/);
    await looks(page, openPage);

    // The file that the command changed, and a hunk of the other one.
    await toggle(list(page), 'guests.txt').click();
    await undo(list(page), 'guests.txt');
    await waitFor(async () => (await read('guests.txt')) === GUESTS);
    await countsAre(page, 4, '+4', '−2');
    await toggle(list(page), 'menu.txt').click();
    const hunks = file(list(page), 'menu.txt').getByRole('button', { name: /^Undo this hunk/ });
    await waitFor(async () => (await hunks.count()) === 2);
    await hunks.first().click();
    await waitFor(async () => (await hunks.count()) === 1);
    assert.equal(await read('menu.txt'), MENU.replace(...LATE));
    await countsAre(page, 4, '+3', '−1');

    // A later edit of the same line, by hand.
    const byHand = MENU.replace(LATE[0], 'Dish 28: ice').replace('Dish 10: soup', 'Dish 10: bread');
    await writeFile(join(folder, 'menu.txt'), byHand);
    await undo(list(page), 'menu.txt');
    await list(page).getByText('Could not undo 1 file.').waitFor({ timeout: PAGE_MS });
    assert.equal(await read('menu.txt'), byHand, 'a refused undo changed the file');
    assert.equal(await text(list(page).locator('.result li p')), "menu.txt was changed after the agent's edit, in the same lines");
    assert.equal(await list(page).getByRole('button', { name: /^Redo/ }).count(), 0, 'a refused undo offers the redo of an earlier one');
    await list(page).getByRole('button', { name: 'Show conflict' }).click();
    await waitFor(async () =>
      /<{7}[^]*Dish 28: ice[^]*={7}[^]*Dish 28: soup[^]*>{7}/.test(await list(page).locator('.conflict').innerText()),
    );
    assert.match(await list(page).locator('.conflict').innerText(), /^… 24 lines\n/);
    await page.screenshot({ path: join(OUT, 'edits-real-conflict.png') });
    await list(page).getByRole('button', { name: 'Undo anyway' }).click();
    assert.match(await page.getByRole('dialog').innerText(), /All later changes of menu\.txt are overwritten/);
    await page.getByRole('dialog').getByRole('button', { name: 'Undo anyway' }).click();
    await waitFor(async () => (await read('menu.txt')) === MENU);
    await redo(list(page));
    await waitFor(async () => (await read('menu.txt')) === byHand);

    // A kept file stays when everything is undone.
    await changesButton(page).click();
    await file(view(page), 'made.txt').getByRole('checkbox').check();
    await file(view(page), 'menu.txt').getByRole('checkbox').check();
    await waitFor(async () => (await view(page).getByRole('checkbox', { checked: true }).count()) === 2);
    await view(page).getByRole('button', { name: 'Undo all' }).click();
    await waitFor(async () => (await view(page).locator('.file').count()) === 2);
    assert.equal(existsSync(join(folder, 'visits.txt')), false, 'the created file is still there');
    assert.deepEqual(await readFile(join(folder, 'picture.bin')), PICTURE);
    assert.equal(await read('made.txt'), 'made\n');
    await page.screenshot({ path: join(OUT, 'edits-real-kept.png') });
    assert.equal(await view(page).getByRole('button', { name: /^Redo/ }).count(), 1, 'the redo is offered twice');
    await redo(view(page));
    await waitFor(async () => (await view(page).locator('.file').count()) === 4);
    assert.equal(await read('visits.txt'), 'one\n');
    await view(page).getByRole('button', { name: 'Uncommitted' }).click();
    await view(page).getByText('Files outside of git repositories are not listed here.').waitFor({ timeout: PAGE_MS });
  },

  async 'undo works after the host was killed, and files restored by hand disappear'({ openPage, scratch }) {
    const place = join(scratch, 'killed');
    const folder = await inn(scratch, 'after-kill');
    const read = (name) => readFile(join(folder, name), 'utf8');
    const first = await startHost(place);
    let host = first;
    try {
      const page = await openPage(first.page);
      await changeEverything(page, folder);
      await countsAre(page, 5, '+5', '−3');
      await answerRequests(
        page,
        () => send(page, `#demo\n${tool('Write', { file_path: join(folder, 'later.txt'), content: 'later\n' })}`),
        2,
      );
      await waitFor(async () => (await page.locator('.changes').count()) === 2);

      // The browser reports each request that a host does not answer.
      const address = page.url();
      await page.goto('about:blank');
      await first.kill();
      host = await startHost(place, {}, new URL(first.page).host);
      await page.goto(address);
      const turn = list(page).first();
      await toggle(turn, 'menu.txt').click();
      await waitFor(async () => (await file(turn, 'menu.txt').locator('tr.is-added').count()) === 2);
      await toggle(turn, 'guests.txt').click();
      await undo(turn, 'guests.txt');
      await waitFor(async () => (await read('guests.txt')) === GUESTS);
      await waitFor(async () => (await turn.locator('.file').count()) === 4);

      await writeFile(join(folder, 'menu.txt'), MENU);
      await waitFor(async () => (await turn.locator('.file').count()) === 3);
      await waitFor(async () => /\b4 files$/.test(await text(changesButton(page))));

      await turn.getByRole('button', { name: 'Restore files to before this turn' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
      await waitFor(async () => (await page.getByText('No changes of this turn are left.').count()) === 2);
      for (const name of ['made.txt', 'visits.txt', 'later.txt']) assert.equal(existsSync(join(folder, name)), false, `${name} is left`);
      assert.deepEqual(await readFile(join(folder, 'picture.bin')), PICTURE);
      await page.screenshot({ path: join(OUT, 'edits-real-restored.png') });
      await redo(turn);
      await waitFor(async () => existsSync(join(folder, 'later.txt')) && existsSync(join(folder, 'made.txt')));
    } finally {
      const trouble = await host.stop();
      assert.ok(host === first || trouble === undefined, trouble);
      await rm(place, { recursive: true, force: true });
    }
  },
};

/** A folder with files to change. */
async function inn(scratch, name) {
  const folder = join(scratch, name);
  await mkdir(folder, { recursive: true });
  await writeFile(join(folder, 'menu.txt'), MENU);
  await writeFile(join(folder, 'guests.txt'), GUESTS);
  await writeFile(join(folder, 'picture.bin'), PICTURE);
  return folder;
}

/** One turn that changes the files in the folder with tools and a command. Returns the texts of the requests. */
async function changeEverything(page, folder) {
  const path = (name) => ({ file_path: join(folder, name) });
  const edit = ([before, after]) => tool('Edit', { ...path('menu.txt'), old_string: before, new_string: after });
  const command = "sed -i s/beta/BETA/ guests.txt && echo one > visits.txt && printf 'a\\000b' > picture.bin";
  const lines = [
    '#demo',
    tool('Read', path('menu.txt')),
    edit(SECOND),
    edit(LATE),
    tool('Write', { ...path('made.txt'), content: 'made\n' }),
    tool('Bash', { command }),
    'text Done.',
  ];
  await chooseDirectory(page, folder);
  return await answerRequests(page, () => send(page, lines.join('\n')), 1);
}

/** Allows all requests until the turn with this number ends. Returns their texts. */
async function answerRequests(page, start, turn) {
  await start();
  const texts = [];
  const ended = page.locator('.turn[data-turn=complete]').nth(turn - 1);
  const card = page.locator('.request');
  for (;;) {
    await card.or(ended).first().waitFor({ timeout: ANSWER_MS });
    if ((await card.count()) === 0) return texts;
    // Buttons ignore presses shortly after they have appeared.
    await card.locator('.choices[data-ready]').waitFor({ timeout: PAGE_MS });
    texts.push(await card.innerText());
    if (turn === 1 && texts.length === 1) await page.screenshot({ path: join(OUT, 'edits-real-request.png') });
    const shown = await card.elementHandle();
    await card.getByRole('button', { name: 'Allow once' }).click();
    await shown.waitForElementState('hidden', { timeout: PAGE_MS });
  }
}

/** The list of the turn, the button in the header and the row of the session show these counts. */
async function countsAre(page, files, added, removed) {
  const words = (locator) => text(locator).catch(() => '');
  await waitFor(async () => (await words(list(page).locator('.changes-head'))).startsWith(`${files} files changed ${added} `));
  await waitFor(async () => {
    const shown = await words(changesButton(page));
    return shown.includes(`${added} `) && shown.includes(`${removed} `) && shown.endsWith(` ${files} files`);
  });
  await waitFor(async () => (await words(currentRow(page))).includes(`${added} ${removed}`));
}

async function undo(place, name) {
  await file(place, name)
    .getByRole('button', { name: `Undo ${name}` })
    .click();
}

async function redo(place) {
  await place.getByRole('button', { name: /^Redo/ }).first().click();
}

/** Pictures of the list, of a diff in the list and of the view. */
async function looks(page, openPage) {
  for (const [name, options] of LOOKS) {
    const other = await openPage(page.url(), options);
    await toggle(list(other), 'menu.txt').click();
    await list(other).locator('.diff-lines').first().waitFor({ timeout: PAGE_MS });
    await list(other).locator('.file-body').scrollIntoViewIfNeeded();
    await other.screenshot({ path: join(OUT, `edits-real-turn-${name}.png`) });
    await fitsScreen(other, `the turn (${name})`);
    await changesButton(other).click();
    await toggle(view(other), 'menu.txt').click();
    await view(other).locator('.is-inline').first().waitFor({ timeout: PAGE_MS });
    await other.screenshot({ path: join(OUT, `edits-real-view-${name}.png`) });
    if (options.viewport.width > 1000) {
      await view(other).getByRole('button', { name: 'Side by side' }).click();
      const pair = view(other).locator('.is-side-by-side tr', { hasText: 'roast' });
      assert.match(await text(pair), /2 − Removed: Dish 2: soup 2 \+ Added: Dish 2: roast/);
      await other.screenshot({ path: join(OUT, `edits-real-side-${name}.png`) });
    }
    await fitsScreen(other, `the view (${name})`);
    await other.close();
  }
}
