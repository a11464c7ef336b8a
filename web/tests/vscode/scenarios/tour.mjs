import { strict as assert } from 'node:assert';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { until } from '../wait.mjs';

/** Waits for the next request to the user, or for the end of the turn. */
function nextStep(workbench, wire) {
  return until(async () => {
    if (wire.actions('host', 'chat/turnComplete').length > 0) return 'end';
    if (await workbench.isAsking()) return 'request';
    return (await workbench.isQuestioned()) && 'question';
  }, 'a request or the end of the tour');
}

export const tourScenarios = {
  async tour({ workbench, wire, folder }) {
    await workbench.send('tour');
    const answers = () => ['chat/toolCallConfirmed', 'chat/inputCompleted'].flatMap((type) => wire.actions('client', type)).length;
    for (let step = await nextStep(workbench, wire); step !== 'end'; step = await nextStep(workbench, wire)) {
      const before = answers();
      if (step === 'question') await workbench.answer('A script');
      else await workbench.confirm((await workbench.confirmation()).buttons[0]);
      await until(() => answers() > before, `an answer to the ${step}`);
      await until(async () => !(await workbench.isAsking()) && !(await workbench.isQuestioned()), `the ${step} disappears`);
    }
    // The text is rendered word by word.
    const summary = await workbench.shows(/That was the tour[^]*Carried out the plan: done[^]*real model\./);
    assert.doesNotMatch(summary, /not done/);
    assert.ok(existsSync(join(folder, 'innkeeper-tour/greeting.md')), 'the plan was carried out');
    assert.equal(wire.actions('client', 'chat/inputCompleted').length, 1);
  },
};
