// Starts VS Code's server, connected to a host through its bridge option, and ends exactly that process.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';

import { until } from './wait.mjs';

const STOP_MS = 5_000;

/** No update, no telemetry, no start page: nothing that reaches the network or covers the chat. */
const SETTINGS = {
  'remote.autoForwardPorts': false,
  'telemetry.telemetryLevel': 'off',
  'workbench.startupEditor': 'none',
  'workbench.tips.enabled': false,
};

/** Gives `address` and `stop()`. `bridge` has the `port` and the `token` of the host; `settings` are the user's. */
export async function startServer(scratch, bridge, settings = {}) {
  const profile = join(scratch, 'profile');
  const home = join(scratch, 'vscode-home');
  await mkdir(join(profile, 'User'), { recursive: true });
  await mkdir(home, { recursive: true });
  await writeFile(join(profile, 'User/settings.json'), JSON.stringify({ ...SETTINGS, ...settings }));
  const port = await freePort();
  const bridgeOptions = {
    'agent-host-bridge-port': bridge.port,
    'agent-host-bridge-host': '127.0.0.1',
    'agent-host-bridge-connection-token': bridge.token,
  };
  const options = [
    ...['--auth', 'none', '--bind-addr', `127.0.0.1:${port}`, '--ignore-last-opened'],
    ...['--disable-telemetry', '--disable-update-check', '--disable-workspace-trust', '--disable-getting-started-override'],
    ...['--user-data-dir', profile, '--extensions-dir', join(scratch, 'extensions')],
    ...Object.entries(bridgeOptions).flatMap(([name, value]) => ['--vscode-option', `${name}=${value}`]),
  ];
  const child = spawn(process.env.INNKEEPER_VSCODE_NODE, [process.env.INNKEEPER_VSCODE_SERVER, ...options], {
    env: { PATH: process.env.PATH, HOME: home, LANG: 'C.UTF-8', SHELL: '/bin/bash' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const log = createWriteStream(join(scratch, 'vscode-server.log'));
  child.stdout.pipe(log, { end: false });
  child.stderr.pipe(log, { end: false });
  const exited = once(child, 'exit');
  const address = `http://127.0.0.1:${port}`;
  const stop = () => stopProcess(child, exited);
  try {
    await until(() => answers(address, child), 'VS Code’s server answers');
    return { address, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function answers(address, child) {
  if (child.exitCode !== null) throw new Error(`VS Code’s server ended with ${child.exitCode}`);
  try {
    return (await fetch(`${address}/healthz`)).ok;
  } catch {
    return false;
  }
}

async function stopProcess(child, exited) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  await exited;
  clearTimeout(timer);
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}
