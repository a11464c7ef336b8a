// Divides the rendering of a long conversation among several tasks, so that the page stays responsive. Work beyond the
// budget of a task waits for a later one.

/** How long work may start in one task. One more piece can exceed it. */
const TASK_BUDGET_MS = 25;
/** Waiting components that are notified in one task. The budget does not contain the layout of what they render. */
const NOTIFIED_PER_TASK = 4;

export class RenderBudget {
  #spentMs = 0;
  #taskPlanned = false;
  #waiting = new Set<() => void>();

  /** Does the work now and returns its result, or returns undefined if the budget of this task is spent. */
  run<T>(work: () => T): T | undefined {
    if (this.#spentMs >= TASK_BUDGET_MS) return undefined;
    const start = performance.now();
    try {
      return work();
    } finally {
      this.#spentMs += performance.now() - start;
      this.#planTask();
    }
  }

  /** Calls back in a later task; returns a function that cancels this. */
  wait(callback: () => void): () => void {
    this.#waiting.add(callback);
    this.#planTask();
    return () => this.#waiting.delete(callback);
  }

  #planTask(): void {
    if (this.#taskPlanned) return;
    this.#taskPlanned = true;
    setTimeout(() => this.#nextTask());
  }

  #nextTask(): void {
    this.#taskPlanned = false;
    this.#spentMs = 0;
    const notified = [...this.#waiting].slice(0, NOTIFIED_PER_TASK);
    for (const callback of notified) this.#waiting.delete(callback);
    if (this.#waiting.size > 0) this.#planTask();
    for (const callback of notified) callback();
  }
}

export const renderBudget = new RenderBudget();
