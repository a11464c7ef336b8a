import { strict as assert } from 'node:assert';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { killRuntime } from '../../kill-runtime.mjs';
import { until } from '../wait.mjs';

/** A turn whose command ends when the file `go` exists. The command needs no permission. */
const GATED = `#demo\ntext It begins.\ntool Bash {"command":"until [ -e go ]; do sleep 0.1; done"}\nwait 4000\ntext It ended.`;

/** Starts a turn that streams text and then waits. */
async function startLongTurn({ workbench, wire }, milliseconds = 60_000) {
  await workbench.send(`#demo\ntext It begins.\nwait ${milliseconds}\ntext It ends.`);
  await workbench.shows('It begins.');
  return wire.action('client', 'chat/turnStarted');
}

const completed = (wire, count) => until(() => wire.actions('host', 'chat/turnComplete').length >= count, `${count} completed turns`);

export const turnControlScenarios = {
  async queue({ workbench, wire }) {
    await startLongTurn({ workbench, wire }, 5_000);
    await workbench.send('#demo\ntext From the queue.', 'Alt+Enter');
    const set = await wire.action('client', 'chat/pendingMessageSet');
    assert.equal(set.kind, 'queued');
    await workbench.screenshot('queued');
    await workbench.shows(/It ends\.[^]*From the queue\./);
    const started = await wire.action('host', 'chat/turnStarted', (action) => action.queuedMessageId !== undefined);
    assert.equal(started.queuedMessageId, set.id);
    await completed(wire, 2);
  },

  async 'send-immediately'({ workbench, wire }) {
    await startLongTurn({ workbench, wire });
    await workbench.send('#demo\ntext The first one.', 'Alt+Enter');
    await workbench.send('#demo\ntext The second one.', 'Alt+Enter');
    await until(() => wire.actions('client', 'chat/pendingMessageSet').length === 2, 'two queued messages');
    await workbench.screenshot('queued');
    await workbench.actOnWaiting('Send Immediately');
    await wire.action('host', 'chat/turnCancelled');
    await completed(wire, 2);
    await workbench.shows(/The second one\.[^]*The first one\./);
    const rejected = wire.messages.filter((entry) => entry.from === 'host' && entry.message.params?.rejectionReason);
    assert.deepEqual(rejected, [], 'nothing is rejected');
    assert.equal(wire.actions('host', 'chat/turnComplete').length, 2, 'each message is answered once');
  },

  async stop({ workbench, wire }) {
    const started = await startLongTurn({ workbench, wire });
    await workbench.screenshot('running');
    await workbench.clickInChat('Cancel');
    const cancelled = await wire.action('client', 'chat/turnCancelled');
    assert.equal(cancelled.turnId, started.turnId);
    await workbench.screenshot('stopped');
    await workbench.send('#demo\ntext The next answer.');
    await workbench.shows('The next answer.');
    assert.doesNotMatch(await workbench.responses(), /It ends\./);
  },

  /** A failed turn can be repeated, whatever VS Code sends for it. */
  async 'try-again'({ workbench, wire, folder }) {
    await startLongTurn({ workbench, wire }, 6_000);
    await killRuntime(folder);
    const failed = await wire.action('host', 'chat/error');
    assert.equal(failed.part.resumable, true);
    await workbench.shows('SIGKILL');
    await workbench.screenshot('failed');
    await workbench.clickInChat('Try Again');
    await completed(wire, 1);
    await workbench.shows('It ends.');
  },

  async steer({ workbench, wire, folder }) {
    await workbench.send(GATED);
    await wire.action('host', 'chat/toolCallReady');
    await workbench.send('#demo\ntext Steered.');
    const set = await wire.action('client', 'chat/pendingMessageSet');
    assert.equal(set.kind, 'steering');
    await workbench.screenshot('steering');
    await writeFile(join(folder, 'go'), '');
    const part = await wire.action('host', 'chat/responsePart', (action) => action.part._meta?.['innkeeper.steering']);
    assert.equal(part.part._meta['innkeeper.steering'].id, set.id);
    await workbench.shows('Steered.');
    await workbench.screenshot('steered');
    await completed(wire, 1);
    await workbench.shows('It ended.');
    // VS Code folds the steps of an ended turn; the text is one of them.
    await workbench.unfoldSteps();
    await workbench.shows('Steered.');
    assert.equal(wire.actions('client', 'chat/turnStarted').length, 1, 'the message is in the running turn');
  },
};
