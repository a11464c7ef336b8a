// VS Code's workbench in a browser: the steps of a user.
//
// Owns the selectors. They belong to VS Code's own markup, so a new version of VS Code may need new ones.

import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

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
const CONFIRMATION = '.chat-confirmation-widget-container:has(.chat-confirmation-widget-buttons):visible';
const CONFIRMATION_BUTTONS = '.chat-confirmation-widget-buttons .monaco-button:visible';
const MODE_PICKER = '.agent-host-chat-input-picker-host-permissionMode .action-label:visible';
const QUESTION = '.chat-question-carousel-container:has(.chat-question-input-container):visible';
/** A list that opens is filled a moment later. */
const LIST_MS = 2_000;
const SETTLE_MS = 400;

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

  /** Waits for the request to confirm a tool call. Gives its text and the labels of its buttons. */
  async confirmation() {
    const card = this.page.locator(CONFIRMATION).last();
    await card.waitFor();
    const text = await settled(() => card.innerText());
    const labels = await card.locator(CONFIRMATION_BUTTONS).allInnerTexts();
    return { text, buttons: labels.filter((label) => label.trim() !== '') };
  }

  /** Clicks on a button of the request. */
  async confirm(label) {
    const card = this.page.locator(CONFIRMATION).last();
    await card.locator(CONFIRMATION_BUTTONS).getByText(label, { exact: true }).click();
  }

  /** Clicks on an entry of the menu next to the first button of the request. */
  async confirmInMenu(label) {
    const card = this.page.locator(CONFIRMATION).last();
    const entry = this.page.locator('.monaco-menu .action-menu-item:visible', { hasText: label }).first();
    await until(async () => {
      if (!(await entry.isVisible())) await card.locator('.monaco-dropdown-button:visible').first().click();
      await entry.click();
      // A menu ignores clicks in the first moment after it opened.
      return disappears(entry, LIST_MS);
    }, `the menu accepts ${label}`);
  }

  /** Whether a request to confirm a tool call is shown. */
  async isAsking() {
    return (await this.page.locator(CONFIRMATION).count()) > 0;
  }

  /** Whether a question is shown. */
  async isQuestioned() {
    return (await this.page.locator(QUESTION).count()) > 0;
  }

  /** Waits for a question and gives its text. */
  async question() {
    const card = this.page.locator(QUESTION).last();
    await card.waitFor();
    return card.innerText();
  }

  /** Clicks on an option of the question. */
  async answer(label) {
    await this.page.locator(`${QUESTION} .chat-question-list-item`, { hasText: label }).first().click();
  }

  /** Clicks on the question's button that sends all answers. */
  async submit() {
    await this.page.locator(QUESTION).last().getByRole('button', { name: 'Submit' }).click();
  }

  /** The label of the permission mode that the picker shows. */
  async mode() {
    return (await this.page.locator(MODE_PICKER).first().innerText()).trim();
  }

  async pickMode(label) {
    await this.#choose(this.page.locator(MODE_PICKER).first(), label);
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

/** Reads a text until it stays the same: parts of a card are filled in later. */
async function settled(read) {
  let last;
  return until(async () => {
    const text = await read();
    const same = text === last;
    last = text;
    await pause(SETTLE_MS);
    return same ? text : undefined;
  }, 'the text stays the same');
}

const appears = (locator, milliseconds) => becomes(locator, 'visible', milliseconds);
const disappears = (locator, milliseconds) => becomes(locator, 'hidden', milliseconds);

async function becomes(locator, state, milliseconds) {
  try {
    await locator.waitFor({ state, timeout: milliseconds });
    return true;
  } catch {
    return false;
  }
}
