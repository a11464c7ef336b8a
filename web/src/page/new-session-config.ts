// The configuration of the session that the next message creates: what the host offers, and what the user chose.

import { computed, signal } from '@preact/signals';

import type { Connection } from '../ahp/connection';
import { ROOT, type SessionConfig } from '../ahp/types';
import { MODE_KEY, modeSetting } from '../permission-mode';

export class NewSessionConfig {
  readonly #offered = signal<SessionConfig | undefined>(undefined);
  readonly #chosen = signal<Record<string, unknown>>({});

  /** The modes that the host offers, with the chosen one as the current one. */
  readonly modes = computed(() => {
    const offered = this.#offered.value;
    const setting = modeSetting(offered && { ...offered, values: { ...offered.values, ...this.#chosen.value } });
    // Before the session exists, every setting can be chosen.
    return setting && { ...setting, changeable: true };
  });

  /** Asks the host what it offers. A host without configuration is not an error. */
  async load(connection: Connection, provider: string): Promise<void> {
    try {
      this.#offered.value = await connection.request<SessionConfig>('resolveSessionConfig', { channel: ROOT, provider });
    } catch {
      this.#offered.value = undefined;
    }
  }

  chooseMode(mode: string): void {
    this.#chosen.value = { ...this.#chosen.value, [MODE_KEY]: mode };
  }

  /** The chosen values for the session that is created now; the next one starts with the host's defaults. */
  take(): Record<string, unknown> | undefined {
    const chosen = this.#chosen.value;
    this.#chosen.value = {};
    return Object.keys(chosen).length > 0 ? chosen : undefined;
  }
}
