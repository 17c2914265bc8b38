// The writes of a client: one after the other, and sums of rewards beside all else.

import type { Slot, Store } from "./store.js";
import type { Core, HostStep } from "./wasm/core.js";

/** A write under way. */
interface Write {
  core: Core;
  number: number;
  slot: Slot;
  body: Uint8Array;
}

/** Makes the writes that the core of a client has due. */
export class Writes {
  readonly #store: Store | null;
  readonly #current: () => Core;
  /** For a program that ends before their end. */
  readonly #underWay = new Map<Slot, Write>();
  #last: Promise<void> = Promise.resolve();
  #sums: Promise<void> = Promise.resolve();

  /** `current` gives the core of now: who has lost the store has another one, and writes nothing more. */
  constructor(store: Store | null, current: () => Core) {
    this.#store = store;
    this.#current = current;
  }

  /** Ends when what was begun is written; not sums of rewards. */
  get last(): Promise<void> {
    return this.#last;
  }

  /** Makes a write that the core has given. Whoever closes waits for it. */
  make(core: Core, step: HostStep): Promise<void> {
    this.#last = this.#last.then(() => this.#made(core, step));
    return this.#last;
  }

  /** Makes the writes that are due, and no call. */
  makeDue(): Promise<void> {
    this.#last = this.#last.then(async () => {
      const core = this.#current();
      while (core === this.#current()) {
        const step = core.next_write();
        if (step === undefined) {
          break;
        }
        await this.#made(core, step);
      }
    });
    return this.#last;
  }

  /** Makes what is due, and what becomes due meanwhile: a reward may come while sums are being written. */
  async settle(): Promise<void> {
    let sums: Promise<void>;
    do {
      sums = this.#sums;
      await sums;
      await this.makeDue();
    } while (sums !== this.#sums);
  }

  /** Makes them at once, by a store that can. */
  makeNow(writeNow: (slot: Slot, body: Uint8Array) => void): void {
    // What is under way is written again: it may not have come to its end.
    for (const { core, number, slot, body } of this.#underWay.values()) {
      writeNow(slot, body);
      core.written(number, true);
    }
    const core = this.#current();
    for (let step = core.next_write(); step !== undefined; step = core.next_write()) {
      writeNow(step.slot as Slot, step.body);
      core.written(step.number, true);
    }
  }

  /** Sums are written beside all else, so that no report waits for them. */
  async #made(core: Core, step: HostStep): Promise<void> {
    if (core !== this.#current()) {
      return step.free();
    }
    if (step.slot !== "rewards") {
      return this.#make(core, step);
    }
    this.#sums = this.#make(core, step).then(() => void (core === this.#current() && this.makeDue()));
  }

  async #make(core: Core, step: HostStep): Promise<void> {
    const { number, body } = step;
    const slot = step.slot as Slot;
    step.free();
    this.#underWay.set(slot, { core, number, slot, body });
    let isDurable = false;
    try {
      await this.#store?.write(slot, body);
      isDurable = this.#store !== null;
    } catch {
      // It is made again.
    }
    this.#underWay.delete(slot);
    core.written(number, isDurable);
  }
}
