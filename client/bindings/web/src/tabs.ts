// What the pages of an origin tell each other: the user's choice, and what they ask the one with the store.

import { unref } from "./transport.js";
import type { Core } from "./wasm/core.js";

/** A choice as one page tells it to another. */
export interface Told {
  label: string | null;
  arm: number | null;
  assignment: bigint | null;
  reported: boolean;
  reason: string | null;
}

/** A choice of the core. */
export function told(choice: ReturnType<Core["choose"]>): Told {
  const taken = {
    label: choice.label ?? null,
    arm: choice.arm ?? null,
    assignment: choice.assignment ?? null,
    reported: choice.reported,
    reason: choice.reason ?? null,
  };
  choice.free();
  return taken;
}

/** No arm, and why. */
function none(reason: string | null): Told {
  return { label: null, arm: null, assignment: null, reported: false, reason };
}

const NOT_YET = "the tab that has the store has not answered yet";

/** What a page does for another one, and hears. */
export interface Page {
  /** Whether this page has the store. */
  has(): boolean;
  choose(experiment: string): Told;
  /** Why there is no arm, in words; `null`: there is one. */
  whyNot(experiment: string): string | null;
  /** Whether an assignment still takes rewards. */
  lasts(assignment: bigint): boolean;
  add(assignment: bigint, metric: string | null, value: number): void;
  follow(wish: "in" | "out"): void;
  /** Calls the listener whenever the experiment begins to have arms here, or ceases to. */
  watch(experiment: string, listener: () => void): void;
  /** Another page may have arms, or none any more. */
  changed(): void;
}

/** A reward, or a value of a metric, that is handed over. */
interface Given {
  number: number;
  assignment: bigint;
  metric: string | null;
  value: number;
}

type Message =
  | "in"
  | "out"
  | "here"
  /** This page has the store now. */
  | "owns"
  /** A page is about to show an arm. */
  | { ask: string }
  | { told: string; choice: Told }
  /** A page wants to know whether there is an arm, which there is. */
  | { peek: string }
  | { has: string }
  /** The experiment has begun to have arms, or has ceased to. */
  | { anew: string }
  /** All that a page has to hand over, in order, and the assignments that it shows. */
  | { by: number; given: Given[]; shown: bigint[] }
  /** The last that was taken of it, and which of the assignments take no more rewards. */
  | { to: number; taken: number; over: bigint[] };

/** A page that has the store and has not answered for so long may be frozen, in milliseconds. */
const ANSWER_MS = 1_000;

/** Between questions about one experiment, in milliseconds. */
const ASK_MS = 50;

/**
 * Between hand-overs, in milliseconds. They come at the same times whether or not there are rewards: a
 * message can end a page that is kept for the back button, and whoever then has the store calls the server.
 */
const HAND_OVER_MS = 1_000;

/** After so many without an answer nobody knows whether an arm still takes rewards. */
const UNANSWERED_MAX = 60;

/** Rewards that wait to be taken. */
const WAITING_MAX = 1_000;

/** The other pages of an origin. Nothing of this leaves the device. */
export class Tabs {
  readonly #page: Page;
  readonly #channel: BroadcastChannel;
  /** This page, in what it hands over. */
  readonly #me = Math.random();
  /** What the page with the store told last; `null`: it may have an arm, and is to be asked. */
  readonly #told = new Map<string, Told | null>();
  /** The arm of each experiment that was told last, without its assignment. */
  readonly #last = new Map<string, Told>();
  /** When an experiment was first asked for without an answer, and last. */
  readonly #asked = new Map<string, { first: number; last: number }>();
  /** Assignments that were told, and take rewards. */
  readonly #open = new Set<bigint>();
  /** Rewards that no page has taken yet, and the number of the last. */
  #waiting: Given[] = [];
  #given = 0;
  #unanswered = 0;
  /** The number of the last reward that this page has taken of each other one. */
  readonly #taken = new Map<number, number>();
  readonly #watched = new Set<string>();
  #timer: ReturnType<typeof setInterval> | undefined;
  #isClosed = false;

  constructor(name: string, page: Page) {
    this.#page = page;
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }: { data: Message }) => this.#hear(data);
  }

  #hear(data: Message): void {
    if (data === "in" || data === "out") {
      this.#heed(data);
      this.#page.follow(data);
    } else if (data === "owns") {
      this.#askAnew();
    } else if (typeof data !== "object" || data === null) {
      return;
    } else if ("to" in data) {
      this.#confirm(data);
    } else if (this.#page.has()) {
      this.#answer(data);
    } else if ("told" in data) {
      this.#learn(data.told, data.choice);
    } else if ("has" in data) {
      this.#unanswered = 0;
      this.#asked.delete(data.has);
      this.#told.set(data.has, null);
      this.#page.changed();
    } else if ("anew" in data && this.#told.get(data.anew)?.label === null) {
      this.#told.set(data.anew, null);
      this.#page.changed();
    }
  }

  #send(message: Message): void {
    if (!this.#isClosed) {
      this.#channel.postMessage(message);
    }
  }

  /** As the page with the store. */
  #answer(data: Exclude<Message, string>): void {
    if ("ask" in data) {
      const choice = this.#page.choose(data.ask);
      this.#send({ told: data.ask, choice });
      if (choice.label === null) {
        this.#watch(data.ask);
      }
    } else if ("peek" in data) {
      const reason = this.#page.whyNot(data.peek);
      if (reason === null) {
        this.#send({ has: data.peek });
      } else {
        this.#send({ told: data.peek, choice: none(reason) });
        this.#watch(data.peek);
      }
    } else if ("by" in data) {
      this.#take(data.by, data.given, data.shown);
    }
  }

  /** Tells pages that were told of no arm when there may be one. */
  #watch(experiment: string): void {
    if (!this.#watched.has(experiment)) {
      this.#watched.add(experiment);
      this.#page.watch(experiment, () => this.#page.has() && this.#send({ anew: experiment }));
    }
  }

  /** Takes what is handed over, once: what was not confirmed is handed over again. */
  #take(by: number, given: Given[], shown: bigint[]): void {
    let taken = this.#taken.get(by) ?? 0;
    for (const { number, assignment, metric, value } of given) {
      if (number > taken) {
        this.#page.add(assignment, metric, value);
        taken = number;
      }
    }
    this.#taken.set(by, taken);
    this.#send({ to: by, taken, over: shown.filter((assignment) => !this.#page.lasts(assignment)) });
  }

  #learn(experiment: string, choice: Told): void {
    this.#told.set(experiment, choice);
    this.#asked.delete(experiment);
    this.#unanswered = 0;
    if (choice.label !== null) {
      const reason = "its attribution window has ended; `await ready()` gets an arm that reports";
      this.#last.set(experiment, { ...choice, assignment: null, reported: false, reason });
    }
    if (choice.reported && choice.assignment !== null) {
      this.#open.add(choice.assignment);
    }
    if (this.#timer === undefined && !this.#isClosed) {
      this.#timer = setInterval(() => this.handOver(), HAND_OVER_MS);
      unref(this.#timer);
    }
    this.#page.changed();
  }

  #confirm({ to, taken, over }: { to: number; taken: number; over: bigint[] }): void {
    if (to !== this.#me) {
      return;
    }
    this.#unanswered = 0;
    this.#waiting = this.#waiting.filter(({ number }) => number > taken);
    for (const assignment of over) {
      this.#open.delete(assignment);
    }
    for (const [experiment, told] of this.#told) {
      if (told !== null && told.assignment !== null && over.includes(told.assignment)) {
        this.#told.set(experiment, null);
      }
    }
    if (over.length > 0) {
      this.#page.changed();
    }
  }

  /** Hands over what no page has taken yet; to this page, if it has the store by now. */
  handOver(): void {
    if (!this.#page.has()) {
      this.#unanswered += 1;
      if (this.#unanswered === UNANSWERED_MAX) {
        this.#forget();
        this.#page.changed();
      }
      this.#send({ by: this.#me, given: this.#waiting, shown: [...this.#open] });
      return;
    }
    for (const { assignment, metric, value } of this.#waiting) {
      this.#page.add(assignment, metric, value);
    }
    this.#waiting = [];
    this.#forget();
  }

  #forget(): void {
    this.#told.clear();
    this.#last.clear();
    this.#asked.clear();
    this.#open.clear();
  }

  /** Where no arm was told, there may be one now. */
  #askAnew(): void {
    for (const experiment of [...this.#told.keys(), ...this.#asked.keys()]) {
      if ((this.#told.get(experiment)?.label ?? null) === null) {
        this.#told.set(experiment, null);
      }
    }
    this.#asked.clear();
    this.#page.changed();
  }

  /** The user's choice: who opts out has what waited erased. */
  #heed(wish: "in" | "out"): void {
    if (wish === "in") {
      return this.#askAnew();
    }
    this.#waiting = [];
    this.#forget();
  }

  /** Tells the user's choice. */
  wish(wish: "in" | "out"): void {
    this.#heed(wish);
    this.#send(wish);
  }

  /** Tells that this page is shown. A page that a browser keeps for its back button ends by that, and its store
   * is free. */
  here(): void {
    this.#send("here");
  }

  /** Tells that this page has the store now. */
  owns(): void {
    this.#send("owns");
  }

  /** Whether arms were told that take rewards. */
  get hasTold(): boolean {
    return this.#open.size > 0;
  }

  /**
   * What to show, as {@link told} gives it. An arm is asked for only by who shows it once it is told: what
   * nobody shows would be reported as an arm without a reaction.
   */
  choose(experiment: string, isShownLater: boolean): Told | null {
    const now = Date.now();
    const asked = this.#asked.get(experiment);
    const known = this.#told.get(experiment);
    if (now - (asked?.last ?? 0) >= ASK_MS && (isShownLater || !known?.label)) {
      this.#asked.set(experiment, { first: asked?.first ?? now, last: now });
      this.#send(isShownLater ? { ask: experiment } : { peek: experiment });
    }
    const told = this.told(experiment);
    if (asked === undefined && told?.label === null) {
      // There is no arm, and none will come from a page that is silent: after whoever renders now.
      for (const wait of [0, ANSWER_MS + ASK_MS]) {
        unref(setTimeout(() => this.#isClosed || this.#page.changed(), wait));
      }
    }
    if (isShownLater || told?.label !== null) {
      return told;
    }
    const reason = "another tab has the store: `await ready()`, then choose";
    return this.#last.get(experiment) ?? none(told.reason === NOT_YET ? reason : told.reason);
  }

  /** What the page with the store told last, or that it has not yet; `null`: not asked, or silent. */
  told(experiment: string): Told | null {
    const [told, asked] = [this.#told.get(experiment), this.#asked.get(experiment)];
    const isSilent = asked !== undefined && Date.now() - asked.first >= ANSWER_MS;
    if (told && (told.label !== null || !isSilent)) {
      return told;
    }
    return asked !== undefined && !isSilent ? none(NOT_YET) : null;
  }

  /** Why the page with the store has no arm; `null`: it has, or is to be asked. `undefined`: not known. */
  whyNot(experiment: string): string | null | undefined {
    const told = this.told(experiment);
    if (told !== null) {
      return told.label === null ? told.reason : null;
    }
    return this.#told.get(experiment) === null && !this.#asked.has(experiment) ? null : undefined;
  }

  /**
   * Keeps a reward, or a value of a metric, until the page with the store has taken it. Returns whether that
   * gave the arm. This page alone adds what comes once it has the store, and nothing before it waits.
   */
  add(assignment: bigint, metric: string | null, value: number): boolean {
    const isElsewhere = !this.#page.has() || this.#waiting.length > 0;
    if (!this.#open.has(assignment) || !isElsewhere || this.#waiting.length >= WAITING_MAX) {
      return false;
    }
    this.#given += 1;
    this.#waiting.push({ number: this.#given, assignment, metric, value });
    return true;
  }

  close(): void {
    clearInterval(this.#timer);
    if (this.#timer !== undefined) {
      this.handOver();
    }
    this.#isClosed = true;
    this.#channel.close();
  }
}
