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
const PENDING = '.interactive-session .interactive-request.pending-request:visible';
const RESPONSES = '.interactive-session .interactive-response';
const CONFIRMATION = '.chat-confirmation-widget-container:has(.chat-confirmation-widget-buttons):visible';
const CONFIRMATION_BUTTONS = '.chat-confirmation-widget-buttons .monaco-button:visible';
const MODE_PICKER = '.agent-host-chat-input-picker-host-permissionMode .action-label:visible';
const QUESTION = '.chat-question-carousel-container:has(.chat-question-input-container):visible';
const STEPS = '.interactive-response .completed-response-disclosure:not([open]) > summary';
const STEP = '.interactive-response .chat-thinking-box > .chat-used-context-label > .monaco-button[aria-expanded="false"]';
const EDIT_PILL = '.interactive-response .chat-codeblock-pill-container';
const TURN_CHANGES = '.interactive-response .checkpoint-file-changes-summary-header';
const CHANGES_CHIP = '.chat-changes-pill-button:visible';
const DIFF = '.editor-group-container .monaco-diff-editor:visible';
const SESSION = '.agent-session-item:visible';
const SOURCE_CONTROL_ROW = '.scm-view .monaco-list-row:visible';
const DIALOG_BUTTON = '.monaco-dialog-box .monaco-button:visible';
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

  /** Types a message and sends it; while a turn runs, Enter steers and Alt+Enter queues. */
  async send(text, key = 'Enter') {
    await this.page.locator(INPUT).first().click();
    for (const [index, line] of text.split('\n').entries()) {
      if (index > 0) await this.page.keyboard.press('Shift+Enter');
      await this.page.keyboard.insertText(line);
    }
    await this.page.keyboard.press(key);
  }

  /** Clicks on a button of the chat by its name, such as `Cancel` of a running turn. */
  async clickInChat(name) {
    await this.page.locator('.interactive-session').getByRole('button', { name }).locator('visible=true').last().click();
  }

  /** The messages that wait, as they are rendered. */
  async waiting() {
    return (await this.page.locator(PENDING).allInnerTexts()).map(inOneLine);
  }

  /** Clicks on an action of the last waiting message. */
  async actOnWaiting(label) {
    const row = this.page.locator(PENDING).last();
    await row.hover();
    await row.locator(`[aria-label^="${label}"]`).click();
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

  /** Opens all steps of an ended turn with edits. VS Code closes them a moment after the end. */
  async unfoldSteps() {
    await this.page.locator(TURN_CHANGES).last().waitFor();
    let open = 0;
    await until(async () => {
      const folded = this.page.locator(`${STEPS}, ${STEP}`).locator('visible=true').first();
      open = (await folded.count()) === 0 ? open + 1 : 0;
      if (open === 0) await folded.click({ timeout: LIST_MS }).catch(() => {});
      await pause(SETTLE_MS);
      return open > 2;
    }, 'all steps are open');
  }

  /** The visible pills of edited files, such as `Edited main.py +1 -1`. */
  async editPills() {
    return (await this.page.locator(EDIT_PILL).locator('visible=true').allInnerTexts()).map(inOneLine);
  }

  /** Clicks on the last pill of this file. */
  async openEditPill(name) {
    await this.page.locator(`${EDIT_PILL} .chat-codeblock-pill-widget`, { hasText: name }).last().click();
  }

  /** The summary under the last response, such as `1 file changed +1 -1`. */
  async turnChanges() {
    return inOneLine(await this.page.locator(TURN_CHANGES).last().innerText());
  }

  /** The text of the chip above the input, such as `1 File +3 -0`, or `undefined`. */
  async changesChip() {
    const [text] = await this.page.locator(CHANGES_CHIP).allInnerTexts();
    return text && inOneLine(text);
  }

  /** Opens the changes of the session with the chip. */
  async openChanges() {
    await this.page.locator(CHANGES_CHIP).click();
  }

  /** The texts of both sides of every visible diff, side by side. */
  diffs() {
    return this.page.evaluate(
      (selector) => {
        // Monaco shows spaces as non-breaking ones, and its lines are in any order.
        const sideOf = (diff, side) => {
          const lines = [...diff.querySelectorAll(`.editor.${side} .view-lines .view-line`)];
          const top = (line) => Number.parseFloat(line.style.top);
          return lines
            .sort((left, right) => top(left) - top(right))
            .map((line) => line.textContent.replaceAll('\u00a0', ' '))
            .join('\n');
        };
        const diffs = [...document.querySelectorAll(selector)].filter((diff) => diff.checkVisibility());
        return diffs.map((diff) => [sideOf(diff, 'original'), sideOf(diff, 'modified')]);
      },
      DIFF.replace(':visible', ''),
    );
  }

  /** Shows the list of sessions beside the chat. */
  async showSessionList() {
    await this.#runCommand('Show Agent Sessions Sidebar');
    await this.page.locator(SESSION).first().waitFor();
  }

  /** Runs a command of the command palette. */
  async #runCommand(label) {
    await this.page.keyboard.press('F1');
    await this.page.locator('.quick-input-widget:visible').waitFor();
    await this.page.keyboard.insertText(label);
    await this.page.locator('.quick-input-list .monaco-list-row:visible', { hasText: label }).first().click();
  }

  /** Loads the window again and opens the first session of the list. */
  async reopen() {
    await this.page.reload();
    await this.page.locator(AGENT_PICKER).first().waitFor();
    await this.showSessionList();
    await this.page.locator(SESSION).first().click();
  }

  /** The counts of the first session in the list, such as `+1 -1`. */
  async sessionCounts() {
    return inOneLine(await this.page.locator(`${SESSION} .agent-session-diff-container`).first().innerText());
  }

  /** Discards the changes of one file in the source control view; `label` is the button of the dialog. */
  async discardInSourceControl(name, label) {
    if ((await this.page.locator('.scm-view:visible').count()) === 0) await this.page.keyboard.press('Control+Shift+KeyG');
    const row = this.page.locator(SOURCE_CONTROL_ROW, { hasText: name }).first();
    await row.hover();
    await row.locator('a[aria-label^="Discard Changes"]').click();
    await this.page.locator(DIALOG_BUTTON, { hasText: label }).click();
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

const inOneLine = (text) => text.replace(/\s+/g, ' ').trim();

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
