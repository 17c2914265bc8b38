// The client as a page holds it; ./node.ts has what programs hold beside it.

import init, { Core, type HostStep } from "./wasm/core.js";
import { type Choice, Experiment, type Standing, type Status } from "./experiment.js";
import { checked, finite, flat, named, type Settings, text } from "./settings.js";
import { type Store, storeOf } from "./store.js";
import { inWords, Log } from "./log.js";
import { type Page, Tabs, type Told, told } from "./tabs.js";
import { posts, type Transport, unref } from "./transport.js";
import { Writes } from "./writes.js";
// The last one: what it leaves is taken before another version of this package is loaded.
import "./packed/wasm.js";

export { Experiment, type Choice, type Standing, type Status } from "./experiment.js";
export type { Rewards, Settings } from "./settings.js";
export { PageStore, type Slot, type Store } from "./store.js";
export { posts, type Answer, type Transport } from "./transport.js";
export type { Logger } from "./log.js";

/** The WebAssembly, by gzip and base64: no bundler has to find a file, and modules of either kind read it. */
const packed = (globalThis as unknown as Record<symbol, string>)[Symbol.for("bandana-client")]!;

let loaded: Promise<unknown> | undefined;

/** Bytes, also for programs that have no types of browsers. */
type Bytes = Uint8Array<ArrayBuffer> | ArrayBuffer;

/** Loads the WebAssembly, once. */
async function load(unpack: (packed: Uint8Array<ArrayBuffer>) => Promise<Bytes>): Promise<void> {
  loaded ??= (async () => {
    const bytes = Uint8Array.from(atob(packed), (character) => character.charCodeAt(0));
    return init({ module_or_path: await unpack(bytes) });
  })();
  try {
    await loaded;
  } catch (error) {
    loaded = undefined;
    throw error;
  }
}

/** How long a start waits for a store that somebody else has, and for one that is slow, in milliseconds. */
const PATIENCE_MS = 250;
const SLOW_MS = 3_000;

/** The wait before a store that could not be read is read again, in milliseconds. */
const RETRY_MS = 2_000;

/** Calls under way at once: of hundreds the client would forget some. */
const CALLS_MAX = 8;

/** The longest that a timer takes, in milliseconds. */
const TIMER_MAX = 86_400_000;

/** A store that is slow. */
const NOT_YET = { standing: "storage-unusable", trouble: "the store has not answered yet" } as const;

/** The client of an app. */
export class Bandana {
  /** @internal Posts to an address. */
  protected static readonly posts: (url: string) => Transport = posts;

  /** @internal Where lines go that no logger of the app's takes. */
  protected static readonly log: (line: string) => void = (line) => console.debug(line);

  /** @internal */
  protected static async unpack(packed: Uint8Array<ArrayBuffer>): Promise<Bytes> {
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).arrayBuffer();
  }

  readonly #settings: Record<string, unknown>;
  readonly #transport: Transport;
  readonly #store: Store | null;
  readonly #log: Log;
  readonly #experiments = new Set<string>();
  readonly #watched = new Map<string, { isReady: boolean; listeners: Set<() => void> }>();
  readonly #end = new AbortController();
  #core: Core;
  /** Why the store is not used, or not yet. */
  #without: { standing: Standing; trouble: string } | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #scheduled = false;
  readonly #writes: Writes;
  /** What the user has chosen since the start, for a store that comes later. */
  #wish: "in" | "out" | null = null;
  /** A start waits no longer for the store. */
  #goOn: () => void = () => {};
  #tabs: Tabs | undefined;
  #carrying = false;
  #again = false;
  /** Calls under way. */
  #calls = 0;
  /** Why the last call had no answer, and what the core says of that. */
  #unanswered: { told: string | undefined; why: string } | undefined;
  #closed: Promise<void> | undefined;

  /** @internal */
  protected constructor(settings: Settings, transport: Transport, store: Store | null, log: Log) {
    this.#settings = flat(settings);
    this.#transport = transport;
    this.#store = store;
    this.#log = log;
    this.#writes = new Writes(store, () => this.#core);
    // Until the store is there: nothing is reported.
    this.#core = this.#start(store === null ? null : { state: new Uint8Array([0]) });
  }

  /**
   * Starts a client: loads the WebAssembly, and reads what was kept.
   *
   * @throws Error or TypeError for a setting that can't be used, with what to give; when the
   *   WebAssembly can't be loaded.
   */
  static async start(settings: Settings): Promise<Bandana> {
    const { server, store, logger } = checked(settings);
    const transport = typeof server === "string" ? this.posts(server) : server;
    await load(this.unpack);
    const log = new Log(logger === undefined ? this.log : logger);
    const client = new this(settings, transport, storeOf(store), log);
    if (client.#store !== null) {
      await client.#own(client.#store);
    }
    client.listen(client.#end.signal);
    client.#schedule();
    client.#tell();
    return client;
  }

  #start(kept: { state?: Uint8Array; rewards?: Uint8Array } | null): Core {
    const place = kept === null ? "memory" : "host";
    try {
      return new Core(this.#settings, place, kept?.state, kept?.rewards, () => this.#schedule());
    } catch (error) {
      throw named(error);
    }
  }

  /** Takes the store if nobody else has it; else when it is free. */
  async #own(store: Store): Promise<void> {
    this.#tellEachOther(store);
    const owned = this.#ask(store).then(async () => {
      const kept = await this.#read(store);
      if (this.#closed === undefined && kept !== undefined) {
        this.#replace(this.#start(kept));
        // The choice of a user who was asked meanwhile.
        if (this.#wish !== null) {
          this.#choose(this.#wish);
        }
        this.#without = null;
        this.#tabs?.owns();
        this.#schedule();
        this.#tell();
      }
    });
    const failed = owned.catch((error: unknown) => {
      this.#without = { standing: "storage-unusable", trouble: inWords(error) };
    });
    let slow: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => {
      this.#goOn = resolve;
      slow = setTimeout(resolve, SLOW_MS);
    });
    await Promise.race([failed, late]);
    clearTimeout(slow);
  }

  /** Ends once the store is this client's. One that can't be used now, as on a full disk, is asked again. */
  async #ask(store: Store): Promise<void> {
    this.#without = NOT_YET;
    const busy = () => {
      this.#without = { standing: "in-use", trouble: "another tab or process has the store" };
      this.#tell();
      // A page that is loaded again gives it back soon; an app does not wait for another tab to end.
      setTimeout(() => this.#goOn(), PATIENCE_MS);
    };
    for (;;) {
      // So long, and it does not fail: somebody else has it, also where the store does not say so.
      const slow = setTimeout(busy, SLOW_MS);
      unref(slow);
      try {
        await store.own(this.#end.signal, () => this.#lose(), busy);
        return clearTimeout(slow);
      } catch (error) {
        clearTimeout(slow);
        if (this.#closed !== undefined) {
          throw error;
        }
        this.#without = { standing: "storage-unusable", trouble: inWords(error) };
        this.#goOn();
        this.#tell();
        await new Promise<void>((resolve) => unref(setTimeout(resolve, RETRY_MS)));
      }
    }
  }

  /** What is kept, once it can be read: what was spent is not known before. `undefined`: closed. */
  async #read(store: Store): Promise<{ state?: Uint8Array; rewards?: Uint8Array } | undefined> {
    this.#without = NOT_YET;
    while (this.#closed === undefined) {
      try {
        const [state, rewards] = [await store.read("state"), await store.read("rewards")];
        return { ...(state && { state }), ...(rewards && { rewards }) };
      } catch (error) {
        this.#without = { standing: "storage-unusable", trouble: inWords(error) };
        this.#goOn();
        this.#tell();
        await new Promise<void>((resolve) => unref(setTimeout(resolve, RETRY_MS)));
      }
    }
    return undefined;
  }

  /** Goes on with another core. */
  #replace(core: Core): void {
    const before = this.#core;
    this.#core = core;
    before.end();
    for (const name of this.#experiments) {
      core.join(name);
    }
  }

  /** Somebody else has the store now: nothing is reported any more. */
  #lose(): void {
    if (this.#closed === undefined) {
      this.#replace(this.#start({ state: new Uint8Array([0]) }));
      this.#without = { standing: "in-use", trouble: "somebody else has taken the store" };
      this.#tell();
    }
  }

  /** The pages of an origin follow the user's choice, and ask the one that has the store. */
  #tellEachOther(store: Store): void {
    if (store.channel === undefined || typeof BroadcastChannel !== "function") {
      return;
    }
    try {
      this.#tabs ??= new Tabs(store.channel, this.#page());
    } catch {
      // A page whose storage the user refuses, or in a frame without an origin, stands alone.
    }
  }

  /** This page, as others see it. */
  #page(): Page {
    return {
      has: () => this.#without === null && this.#closed === undefined,
      choose: (name) => {
        try {
          this.experiment(name);
        } catch {
          // No experiment can have this name, and the default is told.
        }
        return told(this.#core.choose(text(name)));
      },
      whyNot: (name) => {
        try {
          this.experiment(name);
        } catch {
          // As above.
        }
        return this.#core.why_not_ready(text(name)) ?? null;
      },
      // A value of a metric that no experiment has changes nothing.
      lasts: (assignment) => this.#core.measure(assignment, "", 0),
      add: (assignment, metric, value) => void this.#addOwn(assignment, metric, value),
      follow: (wish) => {
        this.#choose(wish);
        void this.#writes.makeDue();
      },
      watch: (name, listener) => void this.watch(name, listener),
      changed: () => this.#changed(),
    };
  }

  /** The tabs to ask, if another one has the store, or had it until this one has read it. */
  #others(): Tabs | undefined {
    const isElsewhere = this.#without?.standing === "in-use" || (this.#without !== null && this.#tabs?.hasTold);
    return isElsewhere && this.#closed === undefined && this.#wish !== "out" ? this.#tabs : undefined;
  }

  /** Applies the user's choice. Returns whether the client could. */
  #choose(wish: "in" | "out"): boolean {
    this.#wish = wish;
    return wish === "out" ? this.#core.opt_out() : this.#core.opt_in();
  }

  /** @internal A page whose network is back, or that is shown again, may have what to send. */
  protected listen(signal: AbortSignal): void {
    if (typeof addEventListener === "function" && typeof document !== "undefined") {
      addEventListener("online", () => this.wake(), { signal });
      // A page that is left has its rewards kept.
      const leave = () => {
        this.#tabs?.handOver();
        void this.#writes.makeDue();
      };
      addEventListener("pagehide", leave, { signal });
      document.addEventListener(
        "visibilitychange",
        () => {
          if (document.visibilityState === "visible") {
            this.#others()?.here();
            this.wake();
          } else {
            // A telephone may end it without another word.
            leave();
          }
        },
        { signal },
      );
    }
  }

  /**
   * The experiment of this name, which is fetched if it is not yet known.
   *
   * @throws Error when no experiment can have this name.
   */
  experiment(name: string): Experiment {
    this.#core.join(text(name));
    this.#experiments.add(name);
    return new Experiment(this, name);
  }

  /** See {@link Experiment.labels}. */
  labels(name: string): string[] {
    return this.#core.labels(text(name));
  }

  /** Why {@link choose} gives no arms, in words; `null`: it does. */
  whyNotReady(name: string): string | null {
    const why = this.#others()?.whyNot(text(name));
    return why === undefined ? (this.#core.why_not_ready(text(name)) ?? null) : why;
  }

  /** @internal As `whyNotReady`. Another page that has the store is asked, so that `choose` shows its arm. */
  prepare(name: string): string | null {
    this.#others()?.choose(name, true);
    return this.whyNotReady(name);
  }

  /** See {@link Experiment.choose}. */
  choose(name: string): Choice {
    // Whoever listens shows the arm when it comes.
    const isShownLater = (this.#watched.get(name)?.listeners.size ?? 0) > 0;
    const asked = typeof name === "string" ? this.#others()?.choose(name, isShownLater) : undefined;
    return asked ? this.#choice(asked) : this.#ownChoice(this.#core.choose(text(name)));
  }

  /** See {@link Experiment.draw}. */
  draw(name: string): Choice {
    return this.#ownChoice(this.#core.draw(text(name)));
  }

  /** What this page's core chooses. It knows of no store while another page has it. */
  #ownChoice(choice: ReturnType<Core["choose"]>): Choice {
    const own = told(choice);
    const isUnreported = own.label !== null && !own.reported;
    return this.#choice({ ...own, reason: (isUnreported && this.#without?.trouble) || own.reason });
  }

  #choice(shown: Told): Choice {
    const { label, assignment } = shown;
    // The number of one that is not reported may be that of another one in the store.
    const reported = shown.reported ? assignment : null;
    return {
      ...shown,
      labelOr: (otherwise) => label ?? otherwise,
      reward: (reward) => reported !== null && this.reward(reported, reward),
      measure: (metric, value) => reported !== null && this.measure(reported, metric, value),
      toJSON: () => ({ ...shown, assignment: assignment?.toString() ?? null }),
    };
  }

  /** Adds a reward to an assignment, by its number or the text of it. Returns whether it was taken. */
  reward(assignment: bigint | string, reward: number): boolean {
    return this.#add(assignment, null, reward);
  }

  /** Adds a value of a metric to an assignment, as {@link Choice.measure}. */
  measure(assignment: bigint | string, metric: string, value: number): boolean {
    return this.#add(assignment, text(metric), value);
  }

  #add(assignment: unknown, metric: string | null, reward: unknown): boolean {
    const isText = typeof assignment === "string" && /^\d{1,20}$/.test(assignment);
    if (assignment === null || this.#closed !== undefined) {
      return false;
    }
    const given = isText ? BigInt(assignment) : assignment;
    // What is no number is that of no assignment, so that the reward counts as refused.
    const number = typeof given === "bigint" && given >= 0n && given < 1n << 64n ? given : (1n << 64n) - 1n;
    const value = finite(reward);
    const isHandedOver = this.#wish !== "out" && this.#tabs?.add(number, metric, value) === true;
    const isOpen = isHandedOver || this.#addOwn(number, metric, value);
    // What is no number is counted as refused, and said to be.
    return isOpen && !Number.isNaN(value);
  }

  #addOwn(assignment: bigint, metric: string | null, value: number): boolean {
    const core = this.#core;
    const isOpen = metric === null ? core.reward(assignment, value) : core.measure(assignment, metric, value);
    // It is kept, and no call is made because of it.
    void this.#writes.makeDue();
    return isOpen;
  }

  /** @internal Calls a listener whenever an experiment begins or ceases to have arms. */
  watch(name: string, listener: () => void): () => void {
    const known = this.#watched.get(name);
    const one = known ?? { isReady: this.whyNotReady(name) === null, listeners: new Set() };
    this.#watched.set(name, one);
    // The same function may be given twice.
    const own = () => listener();
    one.listeners.add(own);
    return () => void one.listeners.delete(own);
  }

  #changed(): void {
    for (const [name, one] of this.#watched) {
      const isReady = this.whyNotReady(name) === null;
      if (isReady !== one.isReady) {
        one.isReady = isReady;
        for (const listener of one.listeners) {
          try {
            listener();
          } catch (error) {
            this.#log.tell("listener", inWords(error));
          }
        }
      }
    }
  }

  /** How the client stands. */
  status(): Status {
    const status = this.#core.status();
    const without = this.#closed === undefined ? this.#without : null;
    const shown: Status = {
      standing: without?.standing ?? (status.standing as Standing),
      trouble: without?.trouble ?? status.trouble ?? null,
      windowSpent: status.window_spent ?? null,
      lifetimeSpent: status.lifetime_spent ?? null,
      openAssignments: status.open_assignments,
      waitingReports: status.waiting_reports,
      uploadsAccepted: status.uploads_accepted,
      uploadsRefused: status.uploads_refused,
      fetchesFailed: status.fetches_failed,
      answersRefused: status.answers_refused,
      rewardsRefused: status.rewards_refused,
      lastRefusal: status.last_refusal ?? null,
      lastError: status.last_error ?? null,
    };
    if (this.#unanswered !== undefined && status.last_error === this.#unanswered.told) {
      shown.lastError = `${shown.lastError ?? "no answer"} (${this.#unanswered.why})`;
    }
    status.free();
    return shown;
  }

  /**
   * Opts the user out: nothing is fetched or sent, and what waited is erased. Resolves to whether that is
   * stored. Where another tab has the store, that one follows; without one it holds as long as this
   * client, and is stored once this client has the store.
   */
  async optOut(): Promise<boolean> {
    this.#tabs?.wish("out");
    const taken = this.#choose("out");
    await this.#writes.makeDue();
    return taken && this.status().standing === "opted-out";
  }

  /** Opts the user in again. Resolves to whether that is stored. */
  async optIn(): Promise<boolean> {
    this.#tabs?.wish("in");
    const taken = this.#choose("in");
    await this.#writes.makeDue();
    return taken && ["on", "clock-disagrees"].includes(this.status().standing);
  }

  /** The network has changed, or the app came to the foreground; never because the user reacted. */
  wake(): void {
    this.#core.wake();
  }

  /** @internal Makes the writes that are due at once, where the store can, for a program that ends. */
  protected keepNow(): void {
    const store = this.#store;
    if (store?.writeNow === undefined || this.#without !== null) {
      return;
    }
    try {
      this.#writes.makeNow((slot, body) => store.writeNow?.(slot, body));
    } catch (error) {
      this.#log.tell("storage", `what was pending at the end is not kept: ${inWords(error)}`);
    }
  }

  /** Resolves when what is pending is written, where it can be. */
  written(): Promise<void> {
    return this.#writes.settle();
  }

  /**
   * Ends everything: what is pending is written, rewards too, and the store is free for another client. It
   * waits for no window.
   */
  close(): Promise<void> {
    this.#closed ??= (async () => {
      clearTimeout(this.#timer);
      this.#tabs?.close();
      await this.#writes.settle();
      this.#core.end();
      this.#end.abort();
      this.#changed();
      // The lock is given back by what listens to the signal.
      await new Promise((resolve) => setTimeout(resolve, 0));
    })();
    return this.#closed;
  }

  /** @internal Whether it is closed, or about to be. */
  get isClosed(): boolean {
    return this.#closed !== undefined;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Has the steps carried out, after whoever runs now. */
  #schedule(): void {
    if (!this.#scheduled && this.#closed === undefined) {
      this.#scheduled = true;
      queueMicrotask(() => {
        this.#scheduled = false;
        void this.#carryOut();
      });
    }
  }

  /** Takes the steps that are due. */
  async #carryOut(): Promise<void> {
    if (this.#carrying) {
      this.#again = true;
      return;
    }
    this.#carrying = true;
    clearTimeout(this.#timer);
    try {
      do {
        this.#again = false;
        await this.#writes.last;
        while (this.#closed === undefined) {
          const core = this.#core;
          // Further calls wait for answers of those that are under way; writes do not.
          const step = this.#calls < CALLS_MAX ? core.next_step() : core.next_write();
          if (step === undefined) {
            break;
          }
          const { kind, milliseconds } = step;
          if (kind === "write") {
            await this.#writes.make(core, step);
          } else if (kind === "call") {
            // Further calls go on meanwhile.
            void this.#call(core, step);
          } else {
            step.free();
            if (kind === "wait") {
              this.#timer = setTimeout(() => void this.#carryOut(), Math.min(milliseconds, TIMER_MAX));
              unref(this.#timer);
            }
            break;
          }
        }
      } while (this.#again);
    } finally {
      this.#carrying = false;
    }
    this.#tell();
  }

  /** Tells listeners and the log what is new. */
  #tell(): void {
    this.#changed();
    if (this.#closed === undefined && this.#log.isUsed) {
      this.#log.status(this.status());
      for (const name of this.#experiments) {
        this.#log.experiment(name, () => this.#core.why_not_ready(name) === undefined);
      }
    }
  }

  async #call(core: Core, step: HostStep): Promise<void> {
    const { number, path, headers: flat } = step;
    const body = new Uint8Array(step.body);
    step.free();
    const headers: Record<string, string> = {};
    for (let i = 0; i + 1 < flat.length; i += 2) {
      headers[flat[i]!] = flat[i + 1]!;
    }
    this.#calls += 1;
    try {
      const answer = await this.#transport(path, headers, body, this.#end.signal);
      if (answer === null) {
        core.unanswered(number);
      } else {
        const { status, contentType, retryAfter } = answer;
        core.answered(number, status, contentType ?? undefined, retryAfter ?? undefined, answer.body);
      }
    } catch (error) {
      // There is no network, or a transport of the app's has failed.
      core.unanswered(number);
      if (core === this.#core && this.#closed === undefined) {
        const status = core.status();
        this.#unanswered = { told: status.last_error, why: inWords(error) };
        status.free();
      }
    }
    this.#calls -= 1;
    this.#schedule();
  }
}
