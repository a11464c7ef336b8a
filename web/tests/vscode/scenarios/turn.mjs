import { strict as assert } from 'node:assert';

export const turnScenarios = {
  async turn({ workbench, wire }) {
    await workbench.send('#demo\nthink Which animals shall I name?\ntext The **quick** brown fox.');
    const started = await wire.action('client', 'chat/turnStarted');
    assert.match(started.message.text, /^#demo\n/);
    await wire.action('host', 'chat/turnComplete', (action) => action.turnId === started.turnId);
    const shown = await workbench.shows('The quick brown fox.');
    assert.equal(shown.split('brown fox').length, 2, `the answer is shown once: ${shown}`);
    assert.equal(await workbench.page.locator('.interactive-response strong', { hasText: 'quick' }).count(), 1, 'Markdown is rendered');
    assert.equal(wire.actions('host', 'chat/error').length, 0);
    await workbench.screenshot('answer');

    await workbench.send('#demo\ntext A second answer.');
    await workbench.shows('A second answer.');
    assert.equal(wire.actions('client', 'chat/turnStarted').length, 2);
  },
};
