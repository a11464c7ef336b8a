import { strict as assert } from 'node:assert';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { until } from '../wait.mjs';

/** The label that the host gives to a permission mode. */
async function labelOf(wire, mode) {
  const { schema } = await wire.result('resolveSessionConfig');
  const { enum: values, enumLabels } = schema.properties.permissionMode;
  assert.ok(values.includes(mode), `${mode} is not offered: ${values}`);
  return enumLabels[values.indexOf(mode)];
}

/** Waits until the host published the mode and the picker shows it. */
async function inMode(workbench, wire, mode) {
  await wire.action('host', 'session/configChanged', (action) => action.config.permissionMode === mode);
  const label = await labelOf(wire, mode);
  await until(async () => (await workbench.mode()) === label, `the picker shows ${label}`);
}

const write = (name) => `tool Write {"file_path":"${name}","content":"hello"}`;

async function changeMode({ workbench, wire, folder }) {
  await workbench.send('#demo\ntext Ready.');
  await workbench.shows('Ready.');
  assert.equal(await workbench.mode(), await labelOf(wire, 'default'));
  await workbench.pickMode(await labelOf(wire, 'acceptEdits'));
  await inMode(workbench, wire, 'acceptEdits');
  await workbench.send(`#demo\n${write('a.txt')}\ntext Written without a question.`);
  await workbench.shows('Written without a question.');
  assert.ok(existsSync(join(folder, 'a.txt')));
  assert.equal(wire.actions('client', 'chat/toolCallConfirmed').length, 0);
  assert.equal(await workbench.mode(), await labelOf(wire, 'acceptEdits'), 'the mode stays');
  await workbench.screenshot('accepted');

  await workbench.pickMode(await labelOf(wire, 'default'));
  await inMode(workbench, wire, 'default');
  await workbench.send(`#demo\n${write('b.txt')}\ntext Written after a question.`);
  const request = await workbench.confirmation();
  assert.match(request.text, /b\.txt[^]*1 file created\s+\+1\s+-0/, 'the request shows the edit');
  // VS Code has its own button for a request with a preview.
  assert.deepEqual(request.buttons, ['Allow']);
  assert.equal(existsSync(join(folder, 'b.txt')), false, 'nothing is written before the answer');
  await workbench.screenshot('request');
  await workbench.confirm('Allow');
  await workbench.shows('Written after a question.');
  assert.ok(existsSync(join(folder, 'b.txt')));
}

async function changeModeInTurn({ workbench, wire, folder }) {
  await workbench.send(`#demo\ntext The turn runs.\nwait 10000\n${write('a.txt')}\ntext Written without a question.`);
  await workbench.shows('The turn runs.');
  await workbench.pickMode(await labelOf(wire, 'acceptEdits'));
  await inMode(workbench, wire, 'acceptEdits');
  assert.equal(wire.actions('host', 'chat/turnComplete').length, 0, 'the turn still runs');
  await workbench.screenshot('changed');
  await workbench.shows('Written without a question.');
  assert.ok(existsSync(join(folder, 'a.txt')));
  assert.equal(wire.actions('client', 'chat/toolCallConfirmed').length, 0);
}

/** VS Code's default settings allow edits in every mode. */
const settings = { 'chat.tools.edits.autoApprove': { '**/*': false } };

export const modeScenarios = {
  mode: { run: changeMode, settings },
  'mode-in-turn': { run: changeModeInTurn, settings },
};

export { inMode };
