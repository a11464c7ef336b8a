import { strict as assert } from 'node:assert';

const question = (header, multiSelect = false) => ({
  question: `Which ${header.toLowerCase()}?`,
  header,
  multiSelect,
  options: [
    { label: 'Small', description: 'Fits into a pocket' },
    { label: 'Large', description: 'Fits into a room' },
  ],
});

/** A script that asks, and then shows the results that the model got. */
const ask = (...questions) => `#demo\ntool AskUserQuestion ${JSON.stringify({ questions })}\ntext The answers:\necho`;

export const questionScenarios = {
  async question({ workbench, wire }) {
    await workbench.send(ask(question('Size')));
    const requested = await wire.action('host', 'chat/inputRequested');
    assert.match(await workbench.question(), /Which size\?[^]*Small[^]*Large/);
    await workbench.screenshot('question');
    await workbench.answer('Large');
    const completed = await wire.action('client', 'chat/inputCompleted');
    assert.deepEqual([completed.requestId, completed.response], [requested.request.id, 'accept']);
    await workbench.shows('"Which size?"="Large"');
    await wire.action('host', 'chat/turnComplete');
  },

  async questions({ workbench, wire }) {
    await workbench.send(ask(question('Size'), question('Colours', true)));
    await workbench.question();
    await workbench.answer('Small');
    await workbench.answer('Small');
    await workbench.answer('Large');
    await workbench.screenshot('second');
    await workbench.submit();
    await wire.action('client', 'chat/inputCompleted');
    await workbench.shows(/"Which size\?"="Small"[^]*"Which colours\?"="Small, ?Large"/);
    await wire.action('host', 'chat/turnComplete');
  },
};
