// What an app asks a client for: an experiment, the arm to show, and how the client stands.

import type { Bandana } from "./index.js";

/** Whether reports are made, and why not. */
export type Standing =
  | "on"
  | "opted-out"
  | "clock-disagrees"
  | "forked"
  | "storage-unusable"
  | "storage-failing"
  | "in-use"
  | "closed";

/** How a client stands. */
export interface Status {
  standing: Standing;
  /** What is wrong with the store, in words. */
  trouble: string | null;
  /** Privacy loss of the running window and so far, in nats; `null`: not known without the store. */
  windowSpent: number | null;
  lifetimeSpent: number | null;
  /** Assignments whose rewards still count. */
  openAssignments: number;
  /** Reports that no server has counted yet. */
  waitingReports: number;
  /** Since the start. */
  uploadsAccepted: number;
  uploadsRefused: number;
  fetchesFailed: number;
  answersRefused: number;
  rewardsRefused: number;
  /** The last refusal of an experiment since the start, in words, with what to do about it. */
  lastRefusal: string | null;
  /** The last fetch, upload or answer since the start that failed, in words, with what to do about it. */
  lastError: string | null;
}

/** What to show: an arm, or the app's own default. */
export interface Choice {
  /** The label of the arm; `null`: show the default. */
  readonly label: string | null;
  /** The index of the arm; `null`: show the default. */
  readonly arm: number | null;
  /** The number for {@link Bandana.reward}, also after a reload; `null`: the default. In JSON a text. */
  readonly assignment: bigint | null;
  /** Whether there will be a report, whatever the user does. */
  readonly reported: boolean;
  /** Why it is the default, or why there will be no report. */
  readonly reason: string | null;
  /** The label of the arm, or the default. */
  labelOr(otherwise: string): string;
  /** Adds a reward, while the window lasts. Returns whether it was taken; of the default, it is not. */
  reward(reward: number): boolean;
  /**
   * Adds a value of a metric, as {@link reward}. An assignment reports its rewards or one metric, which was
   * drawn with its arm; so tell of all of them. A metric that the experiment does not have is ignored.
   */
  measure(metric: string, value: number): boolean;
  /** What `JSON.stringify` writes: without the functions, and the assignment's number as a text. */
  toJSON(): Record<string, string | number | boolean | null>;
}

/** One experiment of an app. */
export class Experiment {
  readonly #client: Bandana;
  /** The name. */
  readonly name: string;

  /** @internal */
  constructor(client: Bandana, name: string) {
    this.#client = client;
    this.name = name;
  }

  /** The labels of the arms in play; none before there is a policy. */
  get labels(): string[] {
    return this.#client.labels(this.name);
  }

  /** Why {@link choose} gives no arms, in words; `null`: it does. */
  whyNotReady(): string | null {
    return this.#client.whyNotReady(this.name);
  }

  /**
   * Resolves once {@link choose} gives arms. An app shows its default meanwhile.
   *
   * @throws Error after so many seconds, or when the client is closed, with what is in the way.
   */
  async ready(seconds: number): Promise<void> {
    const end = Date.now() + seconds * 1000;
    for (let why = this.#client.prepare(this.name); why !== null; why = this.#client.prepare(this.name)) {
      if (Date.now() >= end || this.#client.isClosed) {
        throw new Error(`${this.name}: ${why}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  /**
   * Calls `listener` whenever {@link choose} begins to give arms, or ceases to, and never because of a
   * reward. Returns what ends that. It may be passed on alone, as to React's `useSyncExternalStore`.
   */
  readonly onChange = (listener: () => void): (() => void) => this.#client.watch(this.name, listener);

  /**
   * The arm to show: that of the assignment whose attribution window lasts, also after a reload, or else
   * a new one. At once, offline too; never throws.
   */
  choose(): Choice {
    return this.#client.choose(this.name);
  }

  /**
   * A new assignment, also while the attribution window of another lasts. In an experiment with
   * `redraw`, each draws an arm again and is paid for. In others the arm stays, and one is reported.
   */
  draw(): Choice {
    return this.#client.draw(this.name);
  }
}
