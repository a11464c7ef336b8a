// The scenarios with an unmodified VS Code as the client of the real host. `scripts/vscode` installs what they need.
//
// Each scenario has its own host, VS Code and folder. To add one, add a function to a file in `scenarios`, or a file to
// the list below. It gets the workbench, the wire with every message, and the folder. A scenario that needs settings of
// VS Code or variables of the host is an object with `run`, `settings` and `environment`; its `prepare` gets the folder
// before VS Code opens it.

import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { startHost } from '../host-process.mjs';
import { editScenarios } from './scenarios/edits.mjs';
import { faultScenarios } from './scenarios/faults.mjs';
import { modeScenarios } from './scenarios/modes.mjs';
import { permissionScenarios } from './scenarios/permissions.mjs';
import { planScenarios } from './scenarios/plan.mjs';
import { questionScenarios } from './scenarios/questions.mjs';
import { tourScenarios } from './scenarios/tour.mjs';
import { turnScenarios } from './scenarios/turn.mjs';
import { turnControlScenarios } from './scenarios/turns.mjs';
import { startServer } from './server.mjs';
import { Wire } from './wire.mjs';
import { Workbench } from './workbench.mjs';

const scenarios = {
  ...turnScenarios,
  ...turnControlScenarios,
  ...permissionScenarios,
  ...questionScenarios,
  ...planScenarios,
  ...modeScenarios,
  ...editScenarios,
  ...faultScenarios,
  ...tourScenarios,
};

const results = process.env.INNKEEPER_VSCODE_RESULTS;

/** Runs one scenario; the resources are closed in reverse order. */
async function runScenario(name, scenario, scratch) {
  const { run, settings, environment, prepare } = typeof scenario === 'function' ? { run: scenario } : scenario;
  const closers = [];
  const opened = async (resource, close) => {
    const value = await resource;
    closers.push(() => close(value));
    return value;
  };
  let wire;
  let workbench;
  try {
    const folder = join(scratch, 'work');
    await mkdir(folder);
    await prepare?.(folder);
    let host = await startHost(scratch, environment);
    closers.push(() => host.stop());
    wire = await opened(Wire.start(host.endpoints[0].url), (started) => started.close());
    const server = await opened(startServer(scratch, { port: wire.port, token: host.token }, settings), (started) => started.stop());
    const place = { address: server.address, folder, scratch, results, name };
    workbench = await opened(Workbench.open(place), (started) => started.close());
    await wire.result('initialize');
    await wire.result('listSessions');
    await workbench.pickAgent('Claude');
    await wire.result('createSession');
    const restartHost = async () => {
      const problem = await host.stop();
      if (problem) throw new Error(problem);
      host = await startHost(scratch, environment);
      wire.connectTo(host.endpoints[0].url);
    };
    await run({ workbench, wire, folder, host, restartHost });
    await workbench.screenshot('end');
  } catch (error) {
    await workbench?.screenshot('failure').catch(() => {});
    throw error;
  } finally {
    if (wire) await writeFile(join(results, `${name}.jsonl`), wire.text());
    for (const close of closers.reverse()) {
      const problem = await close();
      if (problem) console.error(problem);
    }
  }
}

const { values: options } = parseArgs({
  options: { only: { type: 'string', multiple: true }, keep: { type: 'boolean' }, list: { type: 'boolean' } },
});
const unknown = (options.only ?? []).filter((name) => !(name in scenarios));
if (options.list || unknown.length > 0) {
  for (const name of unknown) console.error(`unknown scenario ${name}`);
  console.log(Object.keys(scenarios).join('\n'));
  process.exit(unknown.length > 0 ? 2 : 0);
}

await mkdir(results, { recursive: true });
const failed = [];
for (const name of options.only ?? Object.keys(scenarios)) {
  const started = performance.now();
  const scratch = await mkdtemp(join(tmpdir(), `innkeeper-vscode-${name}-`));
  const seconds = () => ((performance.now() - started) / 1000).toFixed(1);
  try {
    await runScenario(name, scenarios[name], scratch);
    console.log(`passed  ${name}, ${seconds()} s`);
  } catch (error) {
    failed.push(name);
    console.log(`FAILED  ${name}, ${seconds()} s\n${error.stack}`);
  }
  if (options.keep) console.log(`        ${scratch}`);
  else await rm(scratch, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
}
console.log(`Screenshots and messages: ${results}`);
process.exitCode = failed.length > 0 ? 1 : 0;
