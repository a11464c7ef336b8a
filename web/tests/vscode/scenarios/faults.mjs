/** The runtime repeats a request whose answer broke off. */
async function restart({ workbench, wire }) {
  await workbench.send('#demo\nchunk 40\ntext Something first.\nwait 2000\ndrop\ntext And the rest.');
  await workbench.shows('Something first.');
  await wire.action('host', 'chat/turnComplete');
  await workbench.shows('The answer broke off.');
  await workbench.shows('And the rest.');
}

export const faultScenarios = {
  restart: { run: restart, environment: { CLAUDE_CODE_MAX_RETRIES: '3' } },
};
