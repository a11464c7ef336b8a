import { strict as assert } from 'node:assert';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';

import { until } from '../wait.mjs';

const BEFORE = 'one = 1\ntwo = 2\n';
const AFTER = 'one = 1\ntwo = 22\n';

function writeMain(folder) {
  writeFileSync(join(folder, 'main.py'), BEFORE);
}

/** Makes the folder a git repository with `main.py`, without the user's configuration of git. */
function commitMain(folder) {
  writeMain(folder);
  const person = { NAME: 'Test', EMAIL: 'test@example.com' };
  const people = ['AUTHOR', 'COMMITTER'].flatMap((role) => Object.entries(person).map(([key, value]) => [`GIT_${role}_${key}`, value]));
  const env = {
    PATH: process.env.PATH,
    HOME: folder,
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_CONFIG_SYSTEM: '/dev/null',
    ...Object.fromEntries(people),
  };
  for (const options of [
    ['init', '--quiet'],
    ['add', '.'],
    ['commit', '--quiet', '--message', 'First'],
  ]) {
    execFileSync('git', options, { cwd: folder, env });
  }
}

/** A script that changes `main.py` and creates `new.txt`. */
function editScript(folder) {
  const file = join(folder, 'main.py');
  const tools = [
    ['Read', { file_path: file }],
    ['Edit', { file_path: file, old_string: 'two = 2', new_string: 'two = 22' }],
    ['Write', { file_path: join(folder, 'new.txt'), content: 'a\nb\nc\n' }],
  ];
  return ['#demo', ...tools.map(([name, input]) => `tool ${name} ${JSON.stringify(input)}`), 'text The script is over.'].join('\n');
}

/** Sends a script and allows every tool call that needs a permission. Gives the texts of the requests. */
async function play({ workbench, wire }, script, requests) {
  const turns = () => wire.actions('host', 'chat/turnComplete').length;
  const before = turns();
  await workbench.send(script);
  const texts = [];
  for (let index = 0; index < requests; index += 1) {
    const request = await workbench.confirmation();
    texts.push(request.text);
    await workbench.screenshot(`request-${index + 1}`);
    const answers = () => wire.actions('client', 'chat/toolCallConfirmed').length;
    const answered = answers();
    await workbench.confirm(request.buttons[0]);
    await until(() => answers() > answered, 'the answer to the request');
    await until(
      async () => !(await workbench.isAsking()) || (await workbench.confirmation()).text !== request.text,
      'the request disappears',
    );
  }
  await until(() => turns() > before, 'the end of the turn');
  await workbench.shows('The script is over.');
  return texts;
}

/** The `fileEdit` items of all results. */
function fileEdits(wire) {
  const results = wire.actions('host', 'chat/toolCallComplete').map((action) => action.result);
  return results.flatMap((result) => result.content ?? []).filter((item) => item.type === 'fileEdit');
}

const uriOf = (folder, name) => `file://${join(folder, name)}`;

/** Waits until the changeset of the session lists these files, with added and removed lines. */
function changesetIs(wire, expected) {
  const files = () =>
    wire
      .changeset((channel) => channel.endsWith('/changeset/session'))
      ?.map(({ id, edit }) => [basename(id), edit.diff.added, edit.diff.removed]);
  const isExpected = () => JSON.stringify(files()?.sort()) === JSON.stringify(expected);
  return until(isExpected, `the changeset lists ${JSON.stringify(expected)}`).catch((error) => {
    throw new Error(`${error.message}\nThe changeset lists ${JSON.stringify(files())}`);
  });
}

/** Waits until the summary of the session has these counts. */
function countsAre(wire, expected) {
  const last = () => wire.notices('host', 'root/sessionSummaryChanged').findLast((notice) => 'changes' in notice.changes);
  const isExpected = () => {
    const { files = 0, additions = 0, deletions = 0 } = last()?.changes.changes ?? {};
    return JSON.stringify([files, additions, deletions]) === JSON.stringify(expected);
  };
  return until(isExpected, `the summary has the counts ${expected}`);
}

async function edit({ workbench, wire, folder }) {
  const requests = await play({ workbench, wire }, editScript(folder), 2);
  assert.match(requests[0], /main\.py[^]*1 file changed\s+\+1\s+-1/, 'the request shows the preview');
  assert.match(requests[1], /new\.txt[^]*1 file created\s+\+3\s+-0/, 'the request shows the preview');
  assert.equal(readFileSync(join(folder, 'main.py'), 'utf8'), AFTER);

  const [changed, created] = fileEdits(wire);
  assert.deepEqual([changed.before.uri, changed.after.uri], [uriOf(folder, 'main.py'), uriOf(folder, 'main.py')]);
  assert.deepEqual(changed.diff, { added: 1, removed: 1 });
  assert.deepEqual([created.before, created.after.uri], [undefined, uriOf(folder, 'new.txt')]);
  for (const side of [changed.before, changed.after, created.after]) {
    assert.match(side.content.uri, /^innkeeper-blob:\/[0-9a-f]{64}\//, 'contents are not files for VS Code');
  }
  await changesetIs(wire, [
    ['main.py', 1, 1],
    ['new.txt', 3, 0],
  ]);
  await countsAre(wire, [2, 4, 1]);

  await workbench.unfoldSteps();
  assert.deepEqual(await workbench.editPills(), ['Edited main.py +1 -1', 'Created new.txt +3 -0']);
  assert.equal(await workbench.turnChanges(), '2 files changed +4 -1');
  await until(async () => (await workbench.changesChip()) === '2 Files +4 -1', 'the chip shows both files');
  await workbench.screenshot('edited');

  // A second turn takes a part back and adds to the other file.
  const again = `tool Edit ${JSON.stringify({ file_path: join(folder, 'main.py'), old_string: 'two = 22', new_string: 'two = 2' })}`;
  await play(
    { workbench, wire },
    `#demo\n${again}\ntool Write ${JSON.stringify({ file_path: 'more.txt', content: 'd\n' })}\ntext The script is over.`,
    2,
  );
  await changesetIs(wire, [
    ['more.txt', 1, 0],
    ['new.txt', 3, 0],
  ]);
  await until(async () => (await workbench.changesChip()) === '2 Files +4 -0', 'the chip follows');
  await workbench.showSessionList();
  await until(async () => (await workbench.sessionCounts()) === '+4 -0', 'the list shows the counts');
}

async function editByCommand({ workbench, wire, folder }) {
  const command = "printf 'three = 3\\n' >> main.py; mkdir made; printf 'x\\ny\\n' > made/by-shell.txt";
  await play({ workbench, wire }, `#demo\ntool Bash ${JSON.stringify({ command })}\ntext The script is over.`, 1);
  assert.equal(readFileSync(join(folder, 'main.py'), 'utf8'), `${BEFORE}three = 3\n`);
  assert.deepEqual(
    wire
      .actions('host', 'chat/toolCallComplete')
      .flatMap((action) => action._meta['innkeeper.edits'])
      .map((item) => [basename(item.after.uri), item.before === undefined, item.diff]),
    [
      ['by-shell.txt', true, { added: 2, removed: 0 }],
      ['main.py', false, { added: 1, removed: 0 }],
    ].sort((left, right) => left[0].localeCompare(right[0])),
  );
  await changesetIs(wire, [
    ['by-shell.txt', 2, 0],
    ['main.py', 1, 0],
  ]);
  await countsAre(wire, [2, 3, 0]);
  // With the edits in its result, VS Code would not show the command and its output.
  await workbench.unfoldSteps();
  await workbench.shows(/Ran printf[^]*2 files changed\s*\+3\s*-0/);
  await until(async () => (await workbench.changesChip()) === '2 Files +3 -0', 'the chip shows both files');
}

async function showDiffs({ workbench, wire, folder }) {
  await play({ workbench, wire }, editScript(folder), 2);
  await workbench.unfoldSteps();
  await workbench.openEditPill('main.py');
  await until(async () => JSON.stringify(await workbench.diffs()) === JSON.stringify([[BEFORE, AFTER]]), 'the pill opens the diff');
  await workbench.screenshot('pill');

  // VS Code reads both sides from the host, and watches them.
  const [{ before, after }] = fileEdits(wire);
  for (const { content } of [before, after]) {
    const read = wire.requests('client', 'resourceRead').filter((request) => request.uri === content.uri);
    assert.ok(read.length > 0, `${content.uri} was not read`);
  }
  await wire.result('createResourceWatch');

  await workbench.openChanges();
  const expected = [
    [BEFORE, AFTER],
    ['', 'a\nb\nc\n'],
  ];
  await until(async () => JSON.stringify(await workbench.diffs()) === JSON.stringify(expected), 'the changes view shows all diffs');
  await workbench.screenshot('changes');
}

async function discard({ workbench, wire, folder }) {
  await play({ workbench, wire }, editScript(folder), 2);
  await changesetIs(wire, [
    ['main.py', 1, 1],
    ['new.txt', 3, 0],
  ]);
  await workbench.discardInSourceControl('main.py', 'Discard File');
  await until(() => readFileSync(join(folder, 'main.py'), 'utf8') === BEFORE, 'the file is as before');
  await changesetIs(wire, [['new.txt', 3, 0]]);
  await countsAre(wire, [1, 3, 0]);
  await until(async () => (await workbench.changesChip()) === '1 File +3 -0', 'the chip follows');
  await workbench.screenshot('discarded');

  await workbench.discardInSourceControl('new.txt', 'Delete File');
  await until(() => !existsSync(join(folder, 'new.txt')), 'the new file is removed');
  await changesetIs(wire, []);
  await countsAre(wire, [0, 0, 0]);
  await until(async () => (await workbench.changesChip()) === undefined, 'the chip disappears');

  // A later edit begins with the content that the user restored.
  const later = { file_path: join(folder, 'main.py'), old_string: 'one = 1', new_string: 'one = 11' };
  await play(
    { workbench, wire },
    `#demo\ntool Read {"file_path":"main.py"}\ntool Edit ${JSON.stringify(later)}\ntext The script is over.`,
    1,
  );
  await changesetIs(wire, [['main.py', 1, 1]]);
  await until(async () => (await workbench.changesChip()) === '1 File +1 -1', 'the chip shows the later edit only');
}

async function reopen({ workbench, wire, folder, restartHost }) {
  await play({ workbench, wire }, editScript(folder), 2);
  await changesetIs(wire, [
    ['main.py', 1, 1],
    ['new.txt', 3, 0],
  ]);
  const reads = wire.requests('client', 'resourceRead').length;
  await restartHost();
  await workbench.reopen();
  await workbench.shows('The script is over.');
  await until(async () => (await workbench.changesChip()) === '2 Files +4 -1', 'the chip shows both files');
  await until(async () => (await workbench.sessionCounts()) === '+4 -1', 'the list shows the counts');
  await workbench.unfoldSteps();
  assert.deepEqual(await workbench.editPills(), ['Edited main.py +1 -1', 'Created new.txt +3 -0']);
  await workbench.openChanges();
  const expected = [
    [BEFORE, AFTER],
    ['', 'a\nb\nc\n'],
  ];
  await until(async () => JSON.stringify(await workbench.diffs()) === JSON.stringify(expected), 'the changes view shows all diffs');
  assert.ok(wire.requests('client', 'resourceRead').length > reads, 'the contents are read from the host');
}

/** The two sides of a diff are in two editors. */
const sideBySide = { 'diffEditor.useInlineViewWhenSpaceIsLimited': false };

export const editScenarios = {
  edit: { run: edit, prepare: writeMain },
  'edit-shell': { run: editByCommand, prepare: writeMain },
  'edit-diff': { run: showDiffs, prepare: writeMain, settings: sideBySide },
  'edit-reopen': { run: reopen, prepare: writeMain, settings: sideBySide },
  'edit-discard': { run: discard, prepare: commitMain },
};
