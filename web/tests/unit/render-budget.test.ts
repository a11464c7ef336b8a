import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { RenderBudget } from '../../src/render-budget';

let now: number;

beforeEach(() => {
  now = 0;
  vi.useFakeTimers({ toFake: ['setTimeout'] });
  vi.spyOn(performance, 'now').mockImplementation(() => now);
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

/** Work that takes this long. */
function work(milliseconds: number): () => string {
  return () => {
    now += milliseconds;
    return 'done';
  };
}

it('does work until the budget of the task is spent, and again in the next task', () => {
  const budget = new RenderBudget();
  expect([budget.run(work(10)), budget.run(work(100)), budget.run(work(1))]).toEqual(['done', 'done', undefined]);
  vi.runAllTimers();
  expect(budget.run(work(1))).toBe('done');
});

it('counts the time of work that throws', () => {
  const budget = new RenderBudget();
  const broken = () => {
    work(100)();
    throw new Error('cannot parse');
  };
  expect(() => budget.run(broken)).toThrow('cannot parse');
  expect(budget.run(work(1))).toBeUndefined();
});

it('notifies a few waiting components per task, in order', () => {
  const budget = new RenderBudget();
  const notified: number[] = [];
  for (let component = 0; component < 6; component++) budget.wait(() => notified.push(component));
  vi.advanceTimersToNextTimer();
  expect(notified).toEqual([0, 1, 2, 3]);
  vi.runAllTimers();
  expect(notified).toEqual([0, 1, 2, 3, 4, 5]);
});

it('does not notify a component that no longer waits', () => {
  const budget = new RenderBudget();
  const callback = vi.fn();
  budget.wait(callback)();
  vi.runAllTimers();
  expect(callback).not.toHaveBeenCalled();
});
