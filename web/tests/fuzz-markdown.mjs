// Fuzzes the rendering of agent data: the built page in a real browser, fed by the fake host.
//
//   node tests/fuzz-markdown.mjs [--seconds N] [--seed N]
//
// Every update must be rendered and laid out within 200 ms. No exception may reach the page, no script may run, and
// only listed elements may appear. CHROMIUM says which browser to use. Case number N uses seed + N, so a failed case
// is repeated alone with its own seed; it is also written to tests/out/.

import { mkdir, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

import { chromium } from 'playwright-core';

import { FakeHost } from './fake-host.mjs';
import { Random } from './fuzz-inputs.mjs';
import { inspectPage, installProbe } from './fuzz-probe.mjs';
import { finishedTurn, turnUpdates } from './fuzz-scenarios.mjs';

const OUT = fileURLToPath(new URL('./out/', import.meta.url));
const LIMIT_MS = 200;
/** An update counts as slow if it is slow every time: the machine may have been busy with something else. */
const ATTEMPTS = 3;
/** Every so many cases, a conversation of this many turns is opened from a snapshot. */
const SNAPSHOT_EVERY = 40;
const SNAPSHOT_TURNS = 25;

const TRACE_CATEGORIES = ['toplevel', 'devtools.timeline'];

const SESSION = 'claude:/fuzz';

class Fuzzer {
  inputs = 0;
  updates = 0;
  slowest = { milliseconds: 0, seed: undefined };
  repeated = 0;
  #errors = [];
  #host;
  #page;
  #devtools;
  #chat;
  /** Messages that the page received, its processor time in milliseconds, and the slowest update of this case. */
  #received = 0;
  #processorTime = 0;
  #slowestOfCase = 0;

  static async open(browser) {
    const fuzzer = new Fuzzer();
    await fuzzer.#startHost();
    await fuzzer.#openPage(browser);
    return fuzzer;
  }

  async close() {
    await this.#host.close();
  }

  /** Runs one case; returns the complaints. */
  async run(seed, snapshot) {
    this.inputs++;
    for (let attempt = 1; ; attempt++) {
      const random = new Random(seed);
      this.#slowestOfCase = 0;
      const complaints = snapshot ? await this.#openSnapshot(random) : await this.#stream(random);
      complaints.push(...this.#errors.splice(0));
      if (complaints.length > 0) return complaints;
      const milliseconds = Math.round(this.#slowestOfCase);
      if (milliseconds > LIMIT_MS && attempt < ATTEMPTS) {
        this.repeated++;
        console.log(`seed ${seed}: an update took ${milliseconds} ms; repeating`);
        continue;
      }
      if (milliseconds > this.slowest.milliseconds) this.slowest = { milliseconds, seed };
      return milliseconds > LIMIT_MS ? [`an update took ${milliseconds} ms`] : [];
    }
  }

  async #startHost() {
    this.#host = await new FakeHost().listen();
    this.#host.createSession({ channel: SESSION, provider: 'claude' });
    const session = this.#host.sessions.get(SESSION);
    session.listed = true;
    Object.assign(session.state, { lifecycle: 'ready', title: 'Fuzzed' });
    this.#chat = session.chat;
  }

  async #openPage(browser) {
    const { host } = new URL(this.#host.page);
    const page = await browser.newPage({ viewport: { width: 1000, height: 800 } });
    page.on('pageerror', (error) => this.#errors.push(`exception: ${error.message}`));
    page.on('dialog', (dialog) => this.#errors.push(`dialog: ${dialog.message()}`) && dialog.dismiss());
    page.on('request', (request) => {
      if (new URL(request.url()).host !== host) this.#errors.push(`request: ${request.url()}`);
    });
    await page.addInitScript(installProbe);
    this.#devtools = await page.context().newCDPSession(page);
    await this.#devtools.send('Performance.enable', { timeDomain: 'threadTicks' });
    await page.goto(`${this.#host.page}#${encodeURIComponent(SESSION)}`);
    await page.waitForSelector('.turns .center');
    this.#page = page;
    await this.#settled(0);
  }

  async #stream(random) {
    for (const update of turnUpdates(random, SESSION, this.#chat.resource)) await this.#publish(update);
    return this.#inspectAndClear();
  }

  async #openSnapshot(random) {
    this.#chat.turns = Array.from({ length: SNAPSHOT_TURNS }, (_, index) => finishedTurn(random, `turn-${index}`));
    const browser = this.#page.context().browser();
    await browser.startTracing(this.#page, { categories: TRACE_CATEGORIES });
    await this.#page.reload();
    await this.#page.waitForSelector('.turn', { state: 'attached' });
    this.#chat.turns = [];
    await this.#settled(0);
    // A reload starts the counter of processor time again, so the time comes from the trace.
    this.#slowestOfCase = longestTask(JSON.parse(String(await browser.stopTracing())).traceEvents);
    return this.#inspectAndClear();
  }

  async #inspectAndClear() {
    const complaints = await this.#page.evaluate(inspectPage);
    await this.#publish([{ channel: this.#chat.resource, action: { type: 'chat/truncated' } }]);
    return complaints;
  }

  async #publish(actions) {
    for (const { channel, action } of actions) this.#host.publish(channel, action);
    this.#host.log.length = 0;
    await this.#settled(this.#received + actions.length);
  }

  /** Waits until the page shows what it received, and takes the times. */
  async #settled(received) {
    const result = await this.#page.evaluate((count) => globalThis.fuzzProbe.settled(count), received);
    const { metrics } = await this.#devtools.send('Performance.getMetrics');
    const processorTime = metrics.find(({ name }) => name === 'TaskDuration').value * 1000;
    // Both are upper bounds: the first contains the time of other processes, the second the time of other tasks.
    this.#slowestOfCase = Math.max(this.#slowestOfCase, Math.min(result.slowest, processorTime - this.#processorTime));
    this.#processorTime = processorTime;
    this.#received = result.received;
    this.updates += result.updates;
  }
}

/** The processor time of the longest task in the main thread of a page, in milliseconds. */
function longestTask(events) {
  const thread = ({ pid, tid }) => `${pid}:${tid}`;
  const main = new Set(events.filter((event) => event.name === 'thread_name' && event.args.name === 'CrRendererMain').map(thread));
  const times = events.filter((event) => event.tdur !== undefined && main.has(thread(event))).map((event) => event.tdur / 1000);
  if (times.length === 0) throw new Error('the trace contains no task of the page');
  return times.reduce((longest, time) => Math.max(longest, time), 0);
}

async function main() {
  const { values } = parseArgs({ options: { seconds: { type: 'string', default: '15' }, seed: { type: 'string', default: '1' } } });
  const end = Date.now() + Number(values.seconds) * 1000;
  const firstSeed = Number(values.seed);
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM || '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-gpu', '--disable-background-networking'],
  });
  let fuzzer;
  try {
    fuzzer = await Fuzzer.open(browser);
    for (let number = 0; number === 0 || Date.now() < end; number++) {
      const seed = firstSeed + number;
      const complaints = await fuzzer.run(seed, seed % SNAPSHOT_EVERY === 0);
      if (complaints.length === 0) continue;
      console.log(`FAILED  seed ${seed}: ${complaints.join('; ')}`);
      await mkdir(OUT, { recursive: true });
      await writeFile(`${OUT}fuzz-${seed}.json`, JSON.stringify(turnUpdates(new Random(seed), SESSION, 'chat'), null, 1));
      process.exitCode = 1;
      break;
    }
    const { inputs, updates, slowest, repeated } = fuzzer;
    const slow = `slowest update ${slowest.milliseconds} ms (seed ${slowest.seed}), ${repeated} slow attempts repeated`;
    console.log(`${inputs} inputs from seed ${firstSeed}, ${updates} updates, ${slow}`);
  } finally {
    await browser.close();
    await fuzzer?.close();
  }
}

await main();
