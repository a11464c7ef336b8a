// Stops background work, single commands and everything, and restarts the agent, if the host can do that.

import { computed, type ReadonlySignal, signal } from '@preact/signals';

import type { ChatState, InitializeResult } from '../ahp/types';
import { oneLine } from '../format';
import { hostMethods } from '../host-metadata';

/** What is stopped: everything, the command or subagent of a tool call, or an entry of the background work. */
export type StopTarget = 'all' | { toolCallId: string } | { workId: string };

export interface StoppingOptions {
  host: ReadonlySignal<InitializeResult | undefined>;
  chat: ReadonlySignal<ChatState | undefined>;
  request<T>(method: string, params: object): Promise<T>;
  notice(text: string): void;
  report(text: string): void;
}

const STOP = 'innkeeper/stop';
const RESTART = 'innkeeper/restartAgent';
/** The stopped things that a report names. */
const NAMED = 5;
const LABEL_CHARACTERS = 60;
const KINDS = new Map([
  ['turn', 'the turn'],
  ['command', 'the command'],
  ['subagent', 'the subagent'],
]);

export class Stopping {
  readonly #options: StoppingOptions;
  /** What the host was asked to do and has not answered yet, by chat. */
  readonly #busy = signal<ReadonlySet<string>>(new Set());
  readonly #chat: ReadonlySignal<string | undefined>;

  readonly canStop: ReadonlySignal<boolean>;
  readonly canRestart: ReadonlySignal<boolean>;

  constructor(options: StoppingOptions) {
    this.#options = options;
    this.#chat = computed(() => options.chat.value?.resource);
    this.canStop = computed(() => hostMethods(options.host.value).has(STOP));
    this.canRestart = computed(() => hostMethods(options.host.value).has(RESTART));
  }

  /** Whether the host was asked to stop this and has not answered yet. */
  isStopping(target: StopTarget): boolean {
    return this.#isBusy(keyOf(target));
  }

  get isRestarting(): boolean {
    return this.#isBusy(RESTART);
  }

  async stop(what: StopTarget): Promise<void> {
    const result = await this.#request<{ stopped?: unknown }>(keyOf(what), STOP, { what }, 'Not stopped');
    if (result && what === 'all') this.#options.report(stoppedWords(result.stopped));
  }

  async restart(): Promise<void> {
    await this.#request(RESTART, RESTART, {}, 'Not restarted');
  }

  #isBusy(task: string): boolean {
    return this.#busy.value.has(`${this.#chat.value} ${task}`);
  }

  async #request<T>(task: string, method: string, params: object, failure: string): Promise<T | undefined> {
    const channel = this.#chat.value;
    if (channel === undefined || this.#isBusy(task)) return undefined;
    const key = `${channel} ${task}`;
    this.#busy.value = new Set([...this.#busy.value, key]);
    try {
      return await this.#options.request<T>(method, { channel, ...params });
    } catch (error) {
      this.#options.notice(`${failure}: ${error instanceof Error ? error.message : String(error)}`);
      return undefined;
    } finally {
      this.#busy.value = new Set([...this.#busy.value].filter((each) => each !== key));
    }
  }
}

function keyOf(target: StopTarget): string {
  if (target === 'all') return 'all';
  return 'workId' in target ? `work ${target.workId}` : `call ${target.toolCallId}`;
}

function stoppedWords(stopped: unknown): string {
  const items = Array.isArray(stopped) ? stopped : [];
  if (items.length === 0) return 'Nothing was running.';
  const words = items.slice(0, NAMED).map(({ kind, label }: { kind?: unknown; label?: unknown }) => {
    const name = oneLine(label, LABEL_CHARACTERS);
    return [KINDS.get(String(kind)) ?? oneLine(kind), name && `“${name}”`].filter(Boolean).join(' ');
  });
  const more = items.length - words.length;
  return `Stopped: ${words.join(', ')}${more > 0 ? ` and ${more} more` : ''}.`;
}
