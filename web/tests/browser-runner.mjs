// Runs tests in a real browser, each with a page of its own, and reports the results.

import { strict as assert } from 'node:assert';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { chromium } from 'playwright-core';

import { OUT } from './browser-steps.mjs';

const CHROMIUM_FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** Prints what the pages of a failed test show, and stores pictures of them. */
async function showPages(contexts) {
  for (const [index, page] of contexts.flatMap((context) => context.pages()).entries()) {
    await page.screenshot({ path: join(OUT, `failed-${index}.png`) }).catch(() => undefined);
    const text = await page.innerText('body', { timeout: 1_000 }).catch((error) => error.message);
    console.log(`page ${index} (out/failed-${index}.png) shows:\n${text.slice(0, 2_000)}`);
  }
}

/** Runs one test with pages that tell what went wrong inside them. */
async function runTest(browser, host, scratch, run) {
  const contexts = [];
  const complaints = [];
  const asked = [];
  const openPage = async (url, options = {}, onSocket = undefined) => {
    const context = await browser.newContext({ viewport: { width: 1200, height: 800 }, ...options });
    contexts.push(context);
    const page = await context.newPage();
    page.on('pageerror', (error) => complaints.push(`error in the page: ${error.message}`));
    page.on('console', (message) => {
      // A refused socket is reported by the browser itself; the page deals with it.
      const expected = message.text().includes('WebSocket connection to');
      if (message.type() === 'error' && !expected) complaints.push(`console: ${message.text()}`);
    });
    page.on('request', (request) => asked.push(request.url()));
    if (onSocket) await page.routeWebSocket(/.*/, onSocket);
    await page.goto(url);
    return page;
  };
  try {
    await run({ page: await openPage(host.page), openPage, host, scratch, asked });
    assert.deepEqual(complaints, []);
  } catch (error) {
    await showPages(contexts);
    throw error;
  } finally {
    for (const context of contexts) await context.close();
  }
}

/**
 * Runs the tests against one host, which is started in a folder of its own; sets the exit code of the process. An
 * argument of the program selects the tests whose name contains it.
 */
export async function runTests(tests, startHost) {
  const scratch = await mkdtemp(join(tmpdir(), 'innkeeper-browser-'));
  let passed = 0;
  let failed = 0;
  let host;
  let browser;
  try {
    await mkdir(OUT, { recursive: true });
    host = await startHost(scratch);
    browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: CHROMIUM_FLAGS });
    const wanted = process.argv[2] ?? '';
    for (const [name, run] of Object.entries(tests).filter(([each]) => each.includes(wanted))) {
      try {
        await runTest(browser, host, scratch, run);
        passed++;
        console.log(`ok      ${name}`);
      } catch (error) {
        failed++;
        console.log(`FAILED  ${name}\n${error.stack ?? error}`);
      }
    }
  } catch (error) {
    failed++;
    console.log(`FAILED  ${error.message}`);
  } finally {
    await browser?.close();
    const trouble = await host?.stop();
    if (trouble) {
      failed++;
      console.log(`FAILED  ${trouble}`);
    }
    await rm(scratch, { recursive: true, force: true });
  }
  if (failed > 0 && host) console.log(`The host said:\n${host.stderr()}`);
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
}
