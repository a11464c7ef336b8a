import { strict as assert } from 'node:assert';
import { existsSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';

import { until } from '../wait.mjs';

/** Waits for the request and gives its tool call id. */
async function asked(wire) {
  const isRequest = (action) => action.options?.length > 0 && !action.confirmed;
  return (await wire.action('host', 'chat/toolCallReady', isRequest)).toolCallId;
}

/** A script with a command that needs permission. VS Code's default settings allow edits, so a file would not do. */
const SCRIPT = '#demo\ntool Bash {"command":"touch note.txt"}\ntext The script is over.';

export const permissionScenarios = {
  async 'permission-allow'({ workbench, wire, folder }) {
    await workbench.send(SCRIPT);
    const id = await asked(wire);
    const request = await workbench.confirmation();
    assert.match(request.text, /touch note\.txt/, 'the request shows the command');
    assert.deepEqual(request.buttons, ['Allow once', 'Deny']);
    assert.equal(existsSync(join(folder, 'note.txt')), false, 'nothing runs before the answer');
    await workbench.screenshot('request');
    await workbench.confirm('Allow once');
    const confirmed = await wire.action('client', 'chat/toolCallConfirmed');
    assert.deepEqual([confirmed.toolCallId, confirmed.approved, confirmed.selectedOptionId], [id, true, 'allow-once']);
    await workbench.shows(/Ran touch note\.txt[^]*The script is over\./);
    assert.ok(existsSync(join(folder, 'note.txt')));
    assert.equal((await wire.action('host', 'chat/toolCallComplete')).result.success, true);
    assert.equal(await workbench.isAsking(), false);
  },

  async 'permission-deny'({ workbench, wire, folder }) {
    await workbench.send(SCRIPT);
    const id = await asked(wire);
    await workbench.confirmation();
    await workbench.confirm('Deny');
    const confirmed = await wire.action('client', 'chat/toolCallConfirmed');
    assert.deepEqual([confirmed.toolCallId, confirmed.approved, confirmed.selectedOptionId], [id, false, 'deny']);
    await workbench.shows('The script is over.');
    assert.equal(existsSync(join(folder, 'note.txt')), false, 'a denied call does not run');
    await wire.action('host', 'chat/turnComplete');
    assert.equal(await workbench.isAsking(), false);
  },

  async 'permission-session'({ workbench, wire, folder }) {
    const file = join(folder, 'note.txt');
    await workbench.send(SCRIPT);
    await asked(wire);
    await workbench.confirmation();
    await workbench.confirmInMenu('Allow for this session');
    const confirmed = await wire.action('client', 'chat/toolCallConfirmed');
    assert.equal(confirmed.selectedOptionId, 'allow-session');
    await wire.action('host', 'chat/turnComplete');
    await workbench.shows('Ran touch note.txt');
    await rm(file);

    await workbench.send(SCRIPT);
    await until(() => existsSync(file), 'the command ran again');
    await until(() => wire.actions('host', 'chat/turnComplete').length === 2, 'the second turn ended');
    assert.equal(wire.actions('client', 'chat/toolCallConfirmed').length, 1, 'the second call is allowed by the rule');
  },
};
