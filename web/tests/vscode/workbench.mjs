// VS Code's workbench in a browser: the steps of a user.
//
// Owns the selectors. They belong to VS Code's own markup, so a new version of VS Code may need new ones.

import { join } from 'node:path';

import { chromium } from 'playwright-core';

import { until, WAIT_MS } from './wait.mjs';

const BROWSER_FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

const AGENT_PICKER = '.chat-session-target-picker-item .action-label:visible';
const PICKER_ROWS = '.action-widget .monaco-list-row.action';
const INPUT = '.interactive-input-part .monaco-editor:visible';
const RESPONSES = '.interactive-session .interactive-response';
/** A list that opens is filled a moment later. */
const LIST_MS = 2_000;

export class Workbench {
  #browser;
  #results;
  #name;
  #shots = 0;

  /** Opens a folder. Screenshots are written to `results` and have `name` in their names. */
  static async open({ address, folder, scratch, results, name }) {
    const workbench = new Workbench();
    workbench.#results = results;
    workbench.#name = name;
    workbench.#browser = await chromium.launchPersistentContext(join(scratch, 'browser'), {
      executablePath: process.env.CHROMIUM,
      viewport: { width: 1400, height: 900 },
      args: BROWSER_FLAGS,
    });
    workbench.page = workbench.#browser.pages()[0] ?? (await workbench.#browser.newPage());
    workbench.page.setDefaultTimeout(WAIT_MS);
    await workbench.page.goto(`${address}/?folder=${encodeURIComponent(folder)}`);
    await workbench.page.waitForSelector('.monaco-workbench');
    return workbench;
  }

  /** Selects the agent for the next session. The list is empty until VS Code has read the host's agents. */
  async pickAgent(label) {
    await this.page.locator(AGENT_PICKER).first().waitFor();
    await this.#choose(this.page.locator(AGENT_PICKER).first(), label);
  }

  /** Opens a picker and clicks on the row with this label. */
  async #choose(picker, label) {
    const row = this.page.locator(`${PICKER_ROWS}[aria-label^="${label}"]`).first();
    await until(async () => {
      await picker.click();
      if (await appears(row, LIST_MS)) return true;
      await this.page.keyboard.press('Escape');
      return false;
    }, `the picker offers ${label}`);
    await row.click();
  }

  /** Types a message and sends it. */
  async send(text) {
    await this.page.locator(INPUT).first().click();
    for (const [index, line] of text.split('\n').entries()) {
      if (index > 0) await this.page.keyboard.press('Shift+Enter');
      await this.page.keyboard.insertText(line);
    }
    await this.page.keyboard.press('Enter');
  }

  /** The text of the responses, as it is rendered. */
  responses() {
    return this.page.evaluate(
      (selector) => [...document.querySelectorAll(selector)].map((element) => element.innerText).join('\n'),
      RESPONSES,
    );
  }

  /** Waits until the responses contain a text or match a pattern. */
  async shows(expected, milliseconds = undefined) {
    let seen = '';
    const found = async () => {
      seen = await this.responses();
      return typeof expected === 'string' ? seen.includes(expected) : expected.test(seen);
    };
    try {
      await until(found, `the chat shows ${expected}`, milliseconds);
    } catch (error) {
      throw new Error(`${error.message}\nThe chat shows:\n${seen}`);
    }
    return seen;
  }

  button(label) {
    return this.page.locator('.monaco-button:visible', { hasText: label }).first();
  }

  /** Saves a screenshot; the number keeps the order of the steps. */
  async screenshot(step) {
    this.#shots += 1;
    await this.page.screenshot({ path: join(this.#results, `${this.#name}-${this.#shots}-${step}.png`) });
  }

  async close() {
    await this.#browser.close();
  }
}

async function appears(locator, milliseconds) {
  try {
    await locator.waitFor({ timeout: milliseconds });
    return true;
  } catch {
    return false;
  }
}
