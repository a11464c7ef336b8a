// Starts the host that the browser test talks to, in a home of its own, and ends exactly that process.

import { spawn } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

const READY_MS = 30_000;
/** The host promises to be gone within 10 seconds after the signal. */
const STOP_MS = 12_000;
/** How much of the host's messages is kept for a failure report. */
const STDERR_KEPT = 20_000;

/**
 * Gives the ready line's fields, `stop()`, `kill()`, and what the host wrote to stderr. `variables` override the
 * environment.
 */
export async function startHost(scratch, variables = {}, listen = '127.0.0.1:0') {
  const binary = process.env.INNKEEPER_BIN;
  if (!binary) throw new Error('INNKEEPER_BIN is not set: build the host and say where its binary is');
  const home = join(scratch, 'home');
  await mkdir(home, { recursive: true });
  const options = ['serve', '--json', '--listen', listen, '--upstream', 'demo', '--no-open'];
  const child = spawn(binary, [...options, '--data-dir', join(scratch, 'data')], {
    env: {
      ...process.env,
      HOME: home,
      CLAUDE_CONFIG_DIR: join(home, '.claude'),
      // Failures shall be seen at once and not after the runtime's patience.
      CLAUDE_CODE_MAX_RETRIES: '0',
      ...variables,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stderr = '';
  child.stderr.on('data', (data) => (stderr = (stderr + data).slice(-STDERR_KEPT)));
  const exited = new Promise((resolve) => child.once('exit', (code, signal) => resolve(signal ?? code)));
  const stop = () => stopChild(child, exited);
  const kill = async () => {
    child.kill('SIGKILL');
    await exited;
  };
  try {
    const ready = await readyLine(child, exited);
    return { ...ready, stop, kill, stderr: () => stderr };
  } catch (error) {
    await stop();
    throw new Error(`${error.message}\n${stderr}`);
  }
}

async function readyLine(child, exited) {
  const line = new Promise((resolve) => createInterface({ input: child.stdout }).once('line', resolve));
  const failure = new Promise((_, reject) => {
    child.once('error', (error) => reject(new Error(`The host could not be started: ${error.message}`)));
    exited.then((code) => reject(new Error(`The host ended with ${code} before it was ready`)));
    setTimeout(() => reject(new Error('The host did not become ready in time')), READY_MS).unref();
  });
  const text = await Promise.race([line, failure]);
  const ready = JSON.parse(text);
  if (ready.event !== 'ready' || typeof ready.page !== 'string') throw new Error(`Unexpected first line: ${text}`);
  return ready;
}

/** Gives a complaint if the host did not end well, else undefined. */
async function stopChild(child, exited) {
  if (child.pid === undefined) return undefined;
  if (child.exitCode !== null || child.signalCode !== null) {
    return `The host ended by itself with ${child.signalCode ?? child.exitCode}`;
  }
  child.kill('SIGTERM');
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, STOP_MS, 'late')));
  const code = await Promise.race([exited, late]);
  clearTimeout(timer);
  if (code === 0) return undefined;
  if (code === 'late') child.kill('SIGKILL');
  return code === 'late' ? 'The host did not end after SIGTERM' : `The host ended with ${code}`;
}
