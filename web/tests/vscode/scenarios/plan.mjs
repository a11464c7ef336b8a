import { strict as assert } from 'node:assert';
import { existsSync } from 'node:fs';
import { join } from 'node:path';

import { inMode } from './modes.mjs';

const PLAN = '# The plan\\n\\n1. Write **one** file';

/** Enters plan mode, presents a plan and writes a file. */
const SCRIPT = [
  '#demo',
  'tool EnterPlanMode {}',
  `tool Write {"file_path":"{plan-file}","content":"${PLAN}"}`,
  `tool ExitPlanMode {"plan":"${PLAN}"}`,
  'tool Write {"file_path":"planned.txt","content":"hello"}',
  'text The script is over.',
].join('\n');

export const planScenarios = {
  async plan({ workbench, wire, folder }) {
    await workbench.send(SCRIPT);
    await inMode(workbench, wire, 'plan');
    const review = await workbench.confirmation();
    assert.match(review.text, /The plan[^]*Write one file/, 'the plan is rendered as Markdown');
    assert.deepEqual(review.buttons, ['Approve', 'Keep planning']);
    await workbench.screenshot('review');
    await workbench.confirmInMenu('Approve and accept edits');
    const confirmed = await wire.action('client', 'chat/toolCallConfirmed');
    assert.deepEqual([confirmed.approved, confirmed.selectedOptionId], [true, 'approve-accept-edits']);
    await workbench.shows('The script is over.');
    await inMode(workbench, wire, 'acceptEdits');
    assert.ok(existsSync(join(folder, 'planned.txt')), 'edits are accepted after the plan');
    assert.equal(wire.actions('client', 'chat/toolCallConfirmed').length, 1);
  },
};
