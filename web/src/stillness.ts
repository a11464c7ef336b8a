// How long buttons have been at their place. A press shortly after they appeared or moved was meant for something else.

/** How long buttons must have been at their place before a press counts. */
export const STILL_MS = 400;

export class Stillness {
  #position: string | undefined;
  #since = 0;

  /** Notes where the buttons are now. */
  see(position: string, now: number): void {
    if (position === this.#position) return;
    this.#position = position;
    this.#since = now;
  }

  /** The buttons were not visible, so their position is unknown. */
  forget(): void {
    this.#position = undefined;
  }

  isStill(position: string, now: number): boolean {
    return position === this.#position && now - this.#since >= STILL_MS;
  }
}
