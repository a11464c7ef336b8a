import { expect, it } from 'vitest';

import { STILL_MS, Stillness } from '../../src/stillness';

it('is still only after the position was the same for the whole time', () => {
  const buttons = new Stillness();
  expect(buttons.isStill('a', 10_000)).toBe(false);
  buttons.see('a', 0);
  expect(buttons.isStill('a', STILL_MS - 1)).toBe(false);
  buttons.see('a', STILL_MS - 1);
  expect(buttons.isStill('a', STILL_MS)).toBe(true);
});

it('starts again when the buttons move, also between two looks', () => {
  const buttons = new Stillness();
  buttons.see('a', 0);
  expect(buttons.isStill('b', 1_000)).toBe(false);
  buttons.see('b', 1_000);
  expect(buttons.isStill('b', 1_000 + STILL_MS - 1)).toBe(false);
  expect(buttons.isStill('b', 1_000 + STILL_MS)).toBe(true);
});

it('starts again after the buttons were not visible', () => {
  const buttons = new Stillness();
  buttons.see('a', 0);
  buttons.forget();
  expect(buttons.isStill('a', 1_000)).toBe(false);
  buttons.see('a', 1_000);
  expect(buttons.isStill('a', 1_000 + STILL_MS)).toBe(true);
});
