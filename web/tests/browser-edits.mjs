// Changed files, diffs and undo in a real browser, against the fake host.
//
//   npm run build && node tests/browser-edits.mjs
//
// CHROMIUM says which browser to use. Pictures go to tests/out/.

import { strict as assert } from 'node:assert';
import { join } from 'node:path';

import { runTests } from './browser-runner.mjs';
import { chooseDirectory, finished, fitsScreen, OUT, PAGE_MS, send, waitFor } from './browser-steps.mjs';
import { FakeHost } from './fake-host.mjs';

const DESKTOP = { viewport: { width: 1280, height: 860 } };
const PHONE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true };
const LOOKS = [
  ['light', { ...DESKTOP, colorScheme: 'light' }],
  ['dark', { ...DESKTOP, colorScheme: 'dark' }],
  ['phone', { ...PHONE, colorScheme: 'light' }],
];

const INN = [
  '//! The rooms of the inn.',
  '',
  'use std::collections::BTreeMap;',
  '',
  '/// A guest with a room.',
  'pub struct Guest {',
  '    pub name: String,',
  '    pub nights: u32,',
  '}',
  '',
  ...Array.from({ length: 30 }, (_, index) => `const ROOM_${index}: u32 = ${index * 10};`),
  '',
  'pub fn price(guest: &Guest) -> u32 {',
  '    guest.nights * 40',
  '}',
  '',
].join('\n');
const NEW_INN = INN.replace('    pub nights: u32,', '    pub nights: u16,\n    pub breakfast: bool,').replace(
  '    guest.nights * 40\n',
  '    let breakfast = if guest.breakfast { 7 } else { 0 };\n    u32::from(guest.nights) * (40 + breakfast)\n',
);
const CELLAR =
  'pub const DEPTH: u32 = 5;\n\n/// Says what is stored in the cellar.\npub fn contents() -> &\'static [&\'static str] {\n    &["wine", "cheese"]\n}\n';
const CONFLICT = 'one\n<<<<<<< current\ntwo of the user\n=======\ntwo\n>>>>>>> before the turn\nthree\n';

const change = (fields) => `edit ${JSON.stringify(fields)}`;
const MODIFY = change({ path: '/inn/src/inn.rs', before: INN, after: NEW_INN, message: 'Edited `inn.rs`' });
const CREATE = change({ path: '/inn/src/cellar.rs', after: CELLAR, toolName: 'Write', message: 'Wrote `cellar.rs`' });
const DELETE = change({ path: '/inn/src/old_cellar.rs', before: 'gone\n', toolName: 'Bash', sources: ['shell'], message: 'Ran `rm`' });
const RENAME = change({
  path: '/inn/docs/guests.md',
  renamedFrom: '/inn/guests.md',
  before: '# Guests\n',
  after: '# Guests\n',
  toolName: 'Bash',
  sources: ['shell'],
  message: 'Ran `git mv guests.md docs`',
});
const BINARY = change({ path: '/inn/lantern.png', before: 'a\0b', after: 'a\0c', toolName: 'Bash', sources: ['shell'], overlaps: true });
const UNKNOWN = change({
  path: '/inn/Cargo.lock',
  before: 'x\n',
  after: 'y\n',
  unknown: true,
  toolName: 'Bash',
  sources: ['shell'],
  notUndoable: 'its content was not recorded before the command ran',
});
const OVERLAPPING = change({ path: '/inn/notes.txt', before: 'one\ntwo\nthree\n', after: 'one\nTWO\nthree\n', conflict: CONFLICT });
const EVERYTHING = ['text I add the cellar and change the price.', MODIFY, CREATE, DELETE, RENAME, BINARY, UNKNOWN, 'text Done.'];

const PERMIT = {
  toolName: 'Edit',
  title: 'Change this file?',
  message: 'Edit [inn.rs](file:///inn/src/inn.rs)',
  input: JSON.stringify({ file_path: '/inn/src/inn.rs', old_string: 'u32', new_string: 'u16' }),
  edits: [{ uri: 'file:///inn/src/inn.rs', before: INN, after: NEW_INN }],
  meta: { reason: 'The mode asks before files are changed.', rules: ['Edit(src/**)'] },
};

const list = (page) => page.locator('.changes');
const view = (page) => page.getByRole('region', { name: 'Changes' });
const file = (place, name) => place.locator('.file', { hasText: name });
const toggle = (place, name) => file(place, name).locator('.file-toggle');
const changesButton = (page) => page.locator('.changes-button');
const session = () => [...fake.sessions.values()].at(-1);
const operations = () => fake.received.filter((each) => each.method === 'invokeChangesetOperation').map((each) => each.params);

async function work(page, ...lines) {
  const directory = page.getByLabel('Working directory');
  if (await directory.count()) await chooseDirectory(page, '/inn');
  const turns = await page.locator('.turn').count();
  await send(page, `#demo\n${lines.join('\n')}`);
  await page.locator('.turn[data-turn=complete]').nth(turns).waitFor({ timeout: PAGE_MS });
}

const text = async (locator) => (await locator.innerText()).replace(/\s+/g, ' ').trim();

const tests = {
  async 'a turn lists its files with counts and what is special about them, and opens a diff'({ page }) {
    await work(page, ...EVERYTHING);
    await list(page).waitFor({ timeout: PAGE_MS });
    assert.match(await text(list(page).locator('.changes-head')), /^6 files changed \+10 lines added, −3 lines removed$/);
    const rows = (await list(page).locator('.file-toggle').allInnerTexts()).map((each) => each.replace(/\s+/g, ' '));
    assert.match(
      rows.find((row) => row.includes('cellar.rs')),
      /created \+6/,
    );
    await waitFor(async () => (await list(page).getByText('cannot be undone').count()) === 1);
    assert.match(await text(toggle(list(page), 'old_cellar.rs')), /deleted shell/);
    assert.match(await text(toggle(list(page), 'guests.md')), /^docs\/ guests.md renamed shell/);
    assert.match(await text(toggle(list(page), 'lantern.png')), /binary shell overlaps/);
    await toggle(list(page), 'inn.rs').click();
    const body = file(list(page), 'inn.rs').locator('.file-body');
    await body.locator('.hunk-head').nth(1).waitFor({ timeout: PAGE_MS });
    assert.match(await text(body.locator('tr.is-removed').first()), /^8 − Removed: pub nights: u32,$/);
    assert.equal(await body.locator('tr.is-added mark').first().innerText(), '16');
    await body
      .getByRole('button', { name: /^Show \d+ unchanged lines$/ })
      .last()
      .click();
    await body.getByText('const ROOM_15').waitFor({ timeout: PAGE_MS });
    await toggle(list(page), 'lantern.png').click();
    await list(page).getByText('This is a binary file.').waitFor({ timeout: PAGE_MS });
    await toggle(list(page), 'Cargo.lock').click();
    const notes = file(list(page), 'Cargo.lock').locator('.file-notes');
    assert.match(await notes.innerText(), /Cannot be undone: its content was not recorded before the command ran\./);
    assert.equal(await file(list(page), 'Cargo.lock').locator('.diff').count(), 0);
    assert.equal(await file(list(page), 'Cargo.lock').getByRole('button', { name: /^Undo/ }).count(), 0);
  },

  async 'a hunk, a file and everything are undone, and a redo brings them back'({ page }) {
    await work(page, MODIFY, CREATE);
    await toggle(list(page), 'inn.rs').click();
    const hunks = file(list(page), 'inn.rs').getByRole('button', { name: /^Undo this hunk/ });
    await waitFor(async () => (await hunks.count()) === 2);
    await hunks.first().focus();
    await page.keyboard.press('Enter');
    await waitFor(async () => (await hunks.count()) === 1);
    const { target, operationId } = operations().at(-1);
    assert.deepEqual([operationId, target.kind, target.resource], ['undo', 'range', 'file:///inn/src/inn.rs']);
    assert.deepEqual(target.range, { start: { line: 7, character: 0 }, end: { line: 9, character: 0 } });
    assert.equal(
      session().changes[0].after,
      INN.replace('    guest.nights * 40\n', NEW_INN.slice(NEW_INN.indexOf('    let breakfast'), NEW_INN.lastIndexOf('}'))),
    );
    assert.equal(await page.evaluate(() => document.activeElement?.className), 'file-toggle', 'the focus got lost');
    await list(page).getByText('Undid the changes of 1 file.').waitFor({ timeout: PAGE_MS });
    await list(page).getByRole('button', { name: 'Redo: Undo inn.rs' }).click();
    await waitFor(async () => (await hunks.count()) === 2);
    await file(list(page), 'inn.rs').getByRole('button', { name: 'Undo src/inn.rs' }).click();
    await waitFor(async () => (await list(page).locator('.file').count()) === 1);
    await list(page).getByRole('button', { name: 'Undo all' }).click();
    await list(page).getByText('No changes of this turn are left.').waitFor({ timeout: PAGE_MS });
    assert.equal(session().changes.length, 0);
  },

  async 'a refused undo shows the conflict, and is forced after a question'({ page }) {
    await work(page, OVERLAPPING);
    await toggle(list(page), 'notes.txt').click();
    await file(list(page), 'notes.txt').getByRole('button', { name: 'Undo notes.txt' }).click();
    await list(page).getByText('Could not undo 1 file.').waitFor({ timeout: PAGE_MS });
    assert.match(await text(list(page).locator('.result li')), /^notes.txt: later changes overlap with this one/);
    await page.getByRole('button', { name: 'Show conflict' }).click();
    assert.match(await page.locator('.conflict').innerText(), /<<<<<<< current\ntwo of the user/);
    assert.equal(await page.locator('.conflict .is-marker').count(), 3);
    await page.screenshot({ path: join(OUT, 'edits-refused.png') });
    await page.getByRole('button', { name: 'Undo anyway' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel' }).click();
    assert.equal(operations().at(-1)._meta, undefined);
    await page.getByRole('button', { name: 'Undo anyway' }).click();
    await page.screenshot({ path: join(OUT, 'edits-force.png') });
    await page.getByRole('dialog').getByRole('button', { name: 'Undo anyway' }).click();
    await list(page).getByText('No changes of this turn are left.').waitFor({ timeout: PAGE_MS });
    assert.deepEqual(operations().at(-1)._meta, { 'innkeeper.force': true });
  },

  async 'the changes view follows other clients; kept files stay when all is undone'({ page, openPage }) {
    await work(page, MODIFY, CREATE, OVERLAPPING);
    assert.match(await text(changesButton(page)), /\+11 .*−3 .* 3 files$/);
    const second = await openPage(page.url());
    await changesButton(second).click();
    await changesButton(page).click();
    await file(view(page), 'cellar.rs').getByRole('checkbox').check();
    await waitFor(() => file(view(second), 'cellar.rs').getByRole('checkbox').isChecked());
    await file(view(page), 'notes.txt').getByRole('checkbox').click();
    await waitFor(() => file(view(second), 'notes.txt').getByRole('checkbox').isChecked());
    await file(view(page), 'notes.txt').getByRole('checkbox').uncheck();
    await waitFor(async () => !(await file(view(second), 'notes.txt').getByRole('checkbox').isChecked()));
    await view(page).getByRole('button', { name: 'Undo all' }).click();
    for (const each of [page, second]) await waitFor(async () => (await view(each).locator('.file').count()) === 2);
    assert.match(await text(view(page).locator('.result')), /Undid the changes of 1 file\. Left 1 file alone\./);
    await view(second).getByRole('button', { name: 'Redo: Undo inn.rs' }).click();
    for (const each of [page, second]) await waitFor(async () => (await view(each).locator('.file').count()) === 3);
    await view(page).getByRole('button', { name: 'Keep all' }).click();
    await waitFor(async () => (await view(second).getByRole('checkbox', { checked: true }).count()) === 3);
    await view(page).getByRole('button', { name: 'Uncommitted' }).click();
    await file(view(page), 'cellar.rs').getByRole('button', { name: 'Discard src/cellar.rs' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Discard' }).click();
    for (const each of [page, second]) await waitFor(async () => (await view(each).locator('.file').count()) === 2);
    await toggle(view(page), 'inn.rs').focus();
    await page.keyboard.press('Escape');
    await view(page).waitFor({ state: 'detached' });
    assert.equal(await page.evaluate(() => document.activeElement?.className), 'changes-button');
    const isUnsubscribed = ({ method, params }) => method === 'unsubscribe' && params.channel === `${session().uri}/changeset/uncommitted`;
    await waitFor(() => fake.received.some(isUnsubscribed));
  },

  async 'files are restored to before a turn'({ page }) {
    await work(page, MODIFY);
    await work(page, CREATE);
    await list(page).first().getByRole('button', { name: 'Restore files to before this turn' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Restore' }).click();
    await list(page).first().getByText('Restored 2 files.').waitFor({ timeout: PAGE_MS });
    // Only lists on the screen are kept up to date.
    const shows = async (turn, content) => {
      await turn.scrollIntoViewIfNeeded();
      await turn.locator(content).waitFor({ timeout: PAGE_MS });
    };
    for (const turn of [list(page).first(), list(page).last()]) await shows(turn, 'text=No changes of this turn are left.');
    await list(page).first().getByRole('button', { name: 'Redo: Restore 2 files' }).click();
    for (const turn of [list(page).first(), list(page).last()]) await shows(turn, '.file');
  },

  async 'a failed operation and the states of a changeset are shown'({ page }) {
    await work(page, MODIFY);
    await changesButton(page).click();
    const channel = `${session().uri}/changeset/session`;
    await file(view(page), 'inn.rs').waitFor({ timeout: PAGE_MS });
    fake.rejectNext = 'cannot change inn.rs: read-only file system; nothing was changed';
    await file(view(page), 'inn.rs').getByRole('button', { name: 'Undo src/inn.rs' }).click();
    await view(page).getByText('read-only file system').waitFor({ timeout: PAGE_MS });
    fake.publish(channel, { type: 'changeset/statusChanged', status: 'recomputing' });
    await view(page).getByText('Updating…').waitFor({ timeout: PAGE_MS });
    assert.equal(await view(page).locator('.file').count(), 1);
    fake.publish(channel, { type: 'changeset/statusChanged', status: 'error', error: { errorType: 'io', message: 'The disk is full.' } });
    await view(page).getByText('The changes could not be computed: The disk is full.').waitFor({ timeout: PAGE_MS });
    fake.publish(channel, { type: 'changeset/statusChanged', status: 'ready' });
    fake.publish(channel, { type: 'changeset/operationStatusChanged', operationId: 'undo', status: 'running' });
    await waitFor(async () => (await view(page).getByRole('button', { name: 'Undo all' }).getAttribute('aria-disabled')) === 'true');
    fake.publish(channel, { type: 'changeset/operationStatusChanged', operationId: 'undo', status: 'idle' });
    fake.publish(channel, { type: 'changeset/cleared' });
    await view(page).getByText('There are no changes.').waitFor({ timeout: PAGE_MS });
  },

  async 'a diff has two columns where there is space, and the choice is kept'({ page }) {
    await work(page, MODIFY);
    await changesButton(page).click();
    await toggle(view(page), 'inn.rs').click();
    await view(page).getByRole('button', { name: 'Side by side' }).click();
    const pair = view(page).locator('.is-side-by-side tr', { hasText: 'nights: u16' });
    assert.match(await text(pair), /^8 − Removed: pub nights: u32, 8 \+ Added: pub nights: u16,$/);
    await page.reload();
    await changesButton(page).click();
    await toggle(view(page), 'inn.rs').click();
    await view(page).locator('.is-side-by-side').first().waitFor({ timeout: PAGE_MS });
    await page.setViewportSize({ width: 600, height: 800 });
    await view(page).locator('.is-inline').first().waitFor({ timeout: PAGE_MS });
    assert.equal(await view(page).getByRole('button', { name: 'Side by side' }).count(), 0);
  },

  async 'a tool row opens its diff, and everything is reachable with the keyboard'({ page }) {
    await work(page, MODIFY);
    const row = page.locator('details.tool');
    assert.match(await text(row.locator('summary').first()), /inn\.rs \+4 lines added, −2 lines removed/);
    await row.locator('summary').first().focus();
    await page.keyboard.press('Enter');
    await row.locator('.diff-lines').first().waitFor({ timeout: PAGE_MS });
    assert.equal(await row.locator('.raw pre').isVisible(), false);
    await changesButton(page).focus();
    await page.keyboard.press('Enter');
    await toggle(view(page), 'inn.rs').waitFor({ timeout: PAGE_MS });
    const reached = new Set();
    for (let presses = 0; presses < 25; presses++) {
      await page.keyboard.press('Tab');
      const name = await page.evaluate(() => {
        const focused = document.activeElement;
        if (focused?.classList.contains('file-toggle') && focused.getAttribute('aria-expanded') === 'false') focused.click();
        return focused?.closest('.scroller')
          ? 'covered'
          : (focused?.getAttribute('aria-label') ?? focused?.closest('button, label')?.textContent);
      });
      reached.add(String(name).replace(/,.*/, ''));
    }
    for (const wanted of ['Close the changes', 'Keep all', 'Undo all', 'Keep src/inn.rs', 'Undo src/inn.rs', 'Undo this hunk']) {
      assert.ok(reached.has(wanted), `${wanted} is not reachable: ${[...reached]}`);
    }
    assert.equal(reached.has('covered'), false, 'the covered conversation is reachable');
  },

  async 'a permission request shows the diff, and the raw input on request'({ page }) {
    await send(page, `#demo\npermit ${JSON.stringify([PERMIT])}\ntext After the edit`);
    const card = page.locator('.request');
    await card.locator('.diff-lines').first().waitFor({ timeout: PAGE_MS });
    assert.equal(await card.getByRole('button', { name: /Undo/ }).count(), 0);
    assert.equal(await card.locator('.checked-input').isVisible(), false);
    await card.getByText('Raw input').click();
    assert.equal(await card.locator('.checked-input').isVisible(), true);
    // The buttons ignore a press while they have just moved.
    await waitFor(async () => {
      const deny = card.getByRole('button', { name: 'Deny', exact: true });
      if (await deny.count()) await deny.click();
      return (await card.count()) === 0;
    });
    await finished(page, 'complete');
  },

  async 'it looks right in light, dark and narrow'({ openPage, host }) {
    for (const [name, options] of LOOKS) {
      const page = await openPage(host.page, options);
      await work(page, ...EVERYTHING, OVERLAPPING);
      await waitFor(async () => (await list(page).getByText('cannot be undone').count()) === 1);
      await page.screenshot({ path: join(OUT, `edits-turn-${name}.png`) });
      await fitsScreen(page, `the turn (${name})`);
      await toggle(list(page), 'src/inn.rs').click();
      await list(page).locator('.diff-lines').first().waitFor({ timeout: PAGE_MS });
      await list(page).locator('.file-body').scrollIntoViewIfNeeded();
      await page.screenshot({ path: join(OUT, `edits-diff-${name}.png`) });
      await fitsScreen(page, `the diff (${name})`);
      await changesButton(page).click();
      await toggle(view(page), 'src/inn.rs').click();
      await view(page).locator('.diff-lines').first().waitFor({ timeout: PAGE_MS });
      await page.screenshot({ path: join(OUT, `edits-view-${name}.png`) });
      await fitsScreen(page, `the view (${name})`);
      if (options.viewport.width > 1000) {
        await view(page).getByRole('button', { name: 'Side by side' }).click();
        await page.screenshot({ path: join(OUT, `edits-side-${name}.png`) });
      }
      await file(view(page), 'notes.txt').getByRole('button', { name: /^Undo/ }).click();
      await view(page).locator('.result').waitFor({ timeout: PAGE_MS });
      await view(page).getByRole('button', { name: 'Show conflict' }).click();
      await page.locator('.conflict').waitFor({ timeout: PAGE_MS });
      await page.screenshot({ path: join(OUT, `edits-conflict-${name}.png`) });
      await fitsScreen(page, `the conflict (${name})`);
      await page.getByRole('button', { name: 'Close the changes' }).click();
      await send(page, `#demo\npermit ${JSON.stringify([PERMIT])}`);
      await page.locator('.request .diff-lines').first().waitFor({ timeout: PAGE_MS });
      await page.locator('.choices[data-ready]').waitFor({ timeout: PAGE_MS });
      await page.screenshot({ path: join(OUT, `edits-permission-${name}.png`) });
      await fitsScreen(page, `the permission (${name})`);
      await page.getByRole('button', { name: 'Stop', exact: true }).click();
    }
  },
};

const fake = await new FakeHost().listen();
await runTests(tests, async () => ({
  page: fake.page,
  stderr: () => '',
  stop: async () => {
    await fake.close();
    return undefined;
  },
}));
