// The client as a page or a program of Node holds it.

import init, { Core, type HostStep } from "./wasm/core.js";
import { DirectoryStore, PageStore, type Slot, type Store } from "./store.js";
import { posts, type Transport } from "./transport.js";

export { DirectoryStore, PageStore, type Slot, type Store } from "./store.js";
export { posts, type Answer, type Transport } from "./transport.js";

/** What the rewards of an app's experiments are. */
export type Rewards =
  | { kind: "binary" }
  | { kind: "bounded"; low: number; high: number }
  | { kind: "categorical"; categories: number };

/** Settings of a client. */
export interface Settings {
  /** The aggregator's address, or a transport of the app's. */
  server: string | Transport;
  /** Whether the user consents. Without, nothing is fetched or sent, and nothing about the user is kept. */
  consent: boolean;
  /**
   * Where the state is kept: a name in the page's IndexedDB, a store, or `null` for nowhere, so that the
   * budget begins anew with each page. The default is the name "default" in a page.
   */
  store?: string | Store | null;
  /** The largest privacy loss of a report that the app accepts, in nats. Default: 1. */
  epsilonMax?: number;
  /** What rewards are. Default: 0 or 1. */
  rewards?: Rewards;
  /** Public key, in hexadecimal, of the operator, who must have signed every experiment. */
  operatorKey?: string;
  /** Public key of a witness, who must have signed too. */
  witnessKey?: string;
  /**
   * The most that reports may cost an installation, in nats, in any so many days and in all. A page's
   * store can be deleted, and the budget then begins anew: so the default is small, 2 in 7 days
   * and 5 in all.
   */
  budget?: { window: number; days: number; lifetime: number };
  /** The key of the app, the same for all installations. */
  appKey?: string;
  /**
   * Whether sums of rewards are kept in the store while their windows last, so that a reload does not
   * lose them. They then lie on the disk as they are. Default: false.
   */
  keepPendingRewards?: boolean;
  /** The shortest release delay that the app accepts, in seconds. */
  leastReleaseDelaySeconds?: number;
  /** Whether an experiment is reported once in so many days, whichever arm, 0: once for ever. */
  reportOnceDays?: number;
  /**
   * The public properties that experiments may divide installations by, each with this one's value, which
   * comes with its reports.
   */
  segments?: Readonly<Record<string, string>>;
  /** What experiments may measure beside the rewards. */
  metrics?: Readonly<Record<string, Exclude<Rewards, { kind: "categorical" }>>>;
  /**
   * The experiment to which the installation tells, by randomized response, whether and why it refuses
   * others, and the largest privacy loss of such a report, 0.5 unless it is given. Default: it tells nobody.
   */
  refusals?: { experiment: string; epsilonMax?: number };
}

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
  /** Privacy loss of the running window and so far, in nats. */
  windowSpent: number;
  lifetimeSpent: number;
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
  /** The number for {@link Bandana.reward}, also after a reload; `null`: the default. */
  readonly assignment: bigint | null;
  /** Whether there will be a report, whatever the user does. */
  readonly reported: boolean;
  /** Why it is the default, or why there will be no report. */
  readonly reason: string | null;
  /** The label of the arm, or the default. */
  labelOr(otherwise: string): string;
  /** Adds a reward, while the window lasts. Returns whether it does; of the default, it does not. */
  reward(reward: number): boolean;
  /**
   * Adds a value of a metric, as {@link reward}. An assignment reports its rewards or one metric, which was
   * drawn with its arm; so tell of all of them. A metric that the experiment does not have is ignored.
   */
  measure(metric: string, value: number): boolean;
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
   * @throws Error after so many seconds, with what is in the way.
   */
  async ready(seconds: number): Promise<void> {
    const end = Date.now() + seconds * 1000;
    for (let why = this.whyNotReady(); why !== null; why = this.whyNotReady()) {
      if (Date.now() >= end) {
        throw new Error(`${this.name}: ${why}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  /**
   * The arm to show: that of the assignment whose attribution window lasts, also after a reload, or else
   * a new one. At once, offline too; never throws.
   */
  choose(): Choice {
    return this.#client.choose(this.name);
  }

  /** Draws an arm anew, also while the window of another assignment lasts. Each is paid for. */
  draw(): Choice {
    return this.#client.draw(this.name);
  }
}

let loaded: Promise<unknown> | undefined;

/** Loads the WebAssembly, once. */
async function load(): Promise<void> {
  loaded ??= (async () => {
    const place = new URL("./wasm/core_bg.wasm", import.meta.url);
    if (place.protocol === "file:") {
      const { readFile } = await import("node:fs/promises");
      return init({ module_or_path: await readFile(place) });
    }
    return init({ module_or_path: place });
  })();
  try {
    await loaded;
  } catch (error) {
    // The network may be there the next time.
    loaded = undefined;
    throw error;
  }
}

/** How long a start waits for a store, in milliseconds. */
const PATIENCE_MS = 250;

/** The wait before a store that could not be read is read again, in milliseconds. */
const RETRY_MS = 2_000;

/** The longest that a timer takes, in milliseconds. */
const TIMER_MAX = 86_400_000;

/** The client of an app. */
export class Bandana {
  readonly #settings: Record<string, unknown>;
  readonly #transport: Transport;
  readonly #store: Store | null;
  readonly #experiments = new Set<string>();
  readonly #end = new AbortController();
  #core: Core;
  /** Why the store is not used, or not yet. */
  #without: { standing: Standing; trouble: string } | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #scheduled = false;
  #writing: Promise<void> = Promise.resolve();
  #sums: Promise<void> = Promise.resolve();
  /** What the user has chosen since the start, for a store that comes later. */
  #wish: "in" | "out" | null = null;
  #channel: BroadcastChannel | undefined;
  #carrying = false;
  #again = false;
  #closed: Promise<void> | undefined;

  private constructor(settings: Record<string, unknown>, transport: Transport, store: Store | null) {
    this.#settings = settings;
    this.#transport = transport;
    this.#store = store;
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
    await load();
    const transport =
      typeof settings.server === "string" ? posts(settings.server) : settings.server;
    const client = new Bandana(flat(settings), transport, storeOf(settings.store));
    if (client.#store !== null) {
      await client.#own(client.#store);
    }
    client.#listen();
    client.#schedule();
    return client;
  }

  #start(kept: { state?: Uint8Array; rewards?: Uint8Array } | null): Core {
    return new Core(this.#settings, kept === null ? "memory" : "host", kept?.state, kept?.rewards, () =>
      this.#schedule(),
    );
  }

  /** Takes the store if nobody else has it; else when it is free. */
  async #own(store: Store): Promise<void> {
    this.#tellEachOther(store);
    const owned = store.own(this.#end.signal, () => this.#lose()).then(async () => {
      const kept = await this.#read(store);
      if (this.#closed === undefined && kept !== undefined) {
        this.#replace(this.#start(kept));
        // The choice of a user who was asked meanwhile.
        if (this.#wish !== null) {
          this.#choose(this.#wish);
        }
        this.#without = null;
        this.#schedule();
      }
    });
    const settled = owned.catch((error: unknown) => {
      this.#without = { standing: "storage-unusable", trouble: String(error) };
    });
    // A store that is free is there at once; an app does not wait for another tab to end.
    const late = new Promise<void>((resolve) => setTimeout(resolve, PATIENCE_MS));
    this.#without = { standing: "in-use", trouble: "another tab or process has the store" };
    await Promise.race([settled, late]);
  }

  /** What is kept, once it can be read: what was spent is not known before. `undefined`: closed. */
  async #read(store: Store): Promise<{ state?: Uint8Array; rewards?: Uint8Array } | undefined> {
    this.#without = { standing: "storage-unusable", trouble: "the store has not answered yet" };
    while (this.#closed === undefined) {
      try {
        const [state, rewards] = [await store.read("state"), await store.read("rewards")];
        return { ...(state && { state }), ...(rewards && { rewards }) };
      } catch (error) {
        this.#without = { standing: "storage-unusable", trouble: String(error) };
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
    }
  }

  /** The pages of an origin follow the user's choice, whichever of them was told. */
  #tellEachOther(store: Store): void {
    if (store.channel !== undefined && typeof BroadcastChannel === "function") {
      this.#channel = new BroadcastChannel(store.channel);
      this.#channel.onmessage = ({ data }) => {
        if (data === "in" || data === "out") {
          this.#choose(data);
          void this.#write();
        }
      };
    }
  }

  /** Applies the user's choice. Returns whether the client could. */
  #choose(wish: "in" | "out"): boolean {
    this.#wish = wish;
    return wish === "out" ? this.#core.opt_out() : this.#core.opt_in();
  }

  /** A page whose network is back, or that is shown again, may have what to send. */
  #listen(): void {
    if (typeof addEventListener === "function" && typeof document !== "undefined") {
      const signal = this.#end.signal;
      addEventListener("online", () => this.wake(), { signal });
      document.addEventListener(
        "visibilitychange",
        () => document.visibilityState === "visible" && this.wake(),
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
    return this.#core.why_not_ready(text(name)) ?? null;
  }

  /** See {@link Experiment.choose}. */
  choose(name: string): Choice {
    return this.#choice(this.#core.choose(text(name)));
  }

  /** See {@link Experiment.draw}. */
  draw(name: string): Choice {
    return this.#choice(this.#core.draw(text(name)));
  }

  #choice(choice: ReturnType<Core["choose"]>): Choice {
    const [label, assignment] = [choice.label ?? null, choice.assignment ?? null];
    const taken: Choice = {
      label,
      arm: choice.arm ?? null,
      assignment,
      reported: choice.reported,
      reason: choice.reason ?? null,
      labelOr: (otherwise) => label ?? otherwise,
      reward: (reward) => assignment !== null && this.reward(assignment, reward),
      measure: (metric, value) => assignment !== null && this.measure(assignment, metric, value),
    };
    choice.free();
    return taken;
  }

  /** Adds a reward to an assignment. Returns whether its window lasts. */
  reward(assignment: bigint, reward: number): boolean {
    return this.#add(assignment, reward, (value) => this.#core.reward(assignment, value));
  }

  /** Adds a value of a metric to an assignment, as {@link Choice.measure}. */
  measure(assignment: bigint, metric: string, value: number): boolean {
    const name = text(metric);
    return this.#add(assignment, value, (value) => this.#core.measure(assignment, name, value));
  }

  #add(assignment: unknown, value: unknown, add: (value: number) => boolean): boolean {
    if (typeof assignment !== "bigint") {
      return false;
    }
    const counts = add(typeof value === "number" ? value : NaN);
    // It is kept, and no call is made because of it.
    void this.#write();
    return counts;
  }

  /** How the client stands. */
  status(): Status {
    const status = this.#core.status();
    const without = this.#closed === undefined ? this.#without : null;
    const shown: Status = {
      standing: without?.standing ?? (status.standing as Standing),
      trouble: without?.trouble ?? status.trouble ?? null,
      windowSpent: status.window_spent,
      lifetimeSpent: status.lifetime_spent,
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
    status.free();
    return shown;
  }

  /**
   * Opts the user out: nothing is fetched or sent, and what waited is erased. Resolves to whether that is
   * stored. Where another tab has the store, that one follows; without one it holds as long as this
   * client, and is stored once this client has the store.
   */
  async optOut(): Promise<boolean> {
    this.#channel?.postMessage("out");
    const taken = this.#choose("out");
    await this.#write();
    return taken && this.status().standing === "opted-out";
  }

  /** Opts the user in again. Resolves to whether that is stored. */
  async optIn(): Promise<boolean> {
    this.#channel?.postMessage("in");
    const taken = this.#choose("in");
    await this.#write();
    return taken && ["on", "clock-disagrees"].includes(this.status().standing);
  }

  /** The network has changed, or the app came to the foreground; never because the user reacted. */
  wake(): void {
    this.#core.wake();
  }

  /** Resolves when what is pending is written, where it can be. */
  async written(): Promise<void> {
    await this.#write();
    await this.#sums;
  }

  /** Ends everything: what is pending is written, and the store is free for another client. */
  close(): Promise<void> {
    this.#closed ??= (async () => {
      clearTimeout(this.#timer);
      this.#channel?.close();
      await this.#write();
      await this.#sums;
      this.#core.end();
      this.#end.abort();
      // The lock is given back by what listens to the signal.
      await new Promise((resolve) => setTimeout(resolve, 0));
    })();
    return this.#closed;
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
        await this.#writing;
        while (this.#closed === undefined) {
          const core = this.#core;
          const step = core.next_step();
          const { kind, milliseconds } = step;
          if (kind === "write") {
            // Whoever closes waits for it.
            this.#writing = this.#writing.then(() => this.#made(core, step));
            await this.#writing;
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
  }

  async #call(core: Core, step: HostStep): Promise<void> {
    const { number, path, headers: flat } = step;
    const body = new Uint8Array(step.body);
    step.free();
    const headers: Record<string, string> = {};
    for (let i = 0; i + 1 < flat.length; i += 2) {
      headers[flat[i]!] = flat[i + 1]!;
    }
    try {
      const answer = await this.#transport(path, headers, body, this.#end.signal);
      if (answer === null) {
        core.unanswered(number);
      } else {
        const { status, contentType, retryAfter } = answer;
        core.answered(number, status, contentType ?? undefined, retryAfter ?? undefined, answer.body);
      }
    } catch {
      // There is no network, or a transport of the app's has failed.
      core.unanswered(number);
    }
    this.#schedule();
  }

  /** Makes the writes that are due, and no call, one after the other. */
  #write(): Promise<void> {
    this.#writing = this.#writing.then(async () => {
      const core = this.#core;
      for (let step = core.next_write(); step !== undefined; step = core.next_write()) {
        await this.#made(core, step);
      }
    });
    return this.#writing;
  }

  /** Makes a write. Sums of rewards are written beside all else, so that no report waits for them. */
  async #made(core: Core, step: HostStep): Promise<void> {
    if (step.slot !== "rewards") {
      return this.#make(core, step);
    }
    this.#sums = this.#make(core, step).then(() => void (core === this.#core && this.#write()));
  }

  async #make(core: Core, step: HostStep): Promise<void> {
    const { number, slot, body } = step;
    step.free();
    let isDurable = false;
    try {
      await this.#store?.write(slot as Slot, body);
      isDurable = this.#store !== null;
    } catch {
      // It is made again.
    }
    core.written(number, isDurable);
  }
}

/** A name, or one that no experiment and no metric can have. */
function text(name: unknown): string {
  return typeof name === "string" ? name : "";
}

/** A timer does not keep a program of Node alive. */
function unref(timer: unknown): void {
  if (typeof timer === "object" && timer !== null && "unref" in timer) {
    (timer as { unref(): void }).unref();
  }
}

function storeOf(store: Settings["store"]): Store | null {
  if (store === undefined) {
    if (typeof indexedDB === "undefined") {
      throw new TypeError("store: there is no IndexedDB; give a DirectoryStore, or null for none");
    }
    return new PageStore("default");
  }
  return typeof store === "string" ? new PageStore(store) : store;
}

/** What rewards or values of a metric are, as the WebAssembly takes it. */
function terms(rewards: Rewards): Record<string, unknown> {
  return {
    rewards: rewards.kind,
    rewardLow: rewards.kind === "bounded" ? rewards.low : 0,
    rewardHigh: rewards.kind === "bounded" ? rewards.high : 1,
    categories: rewards.kind === "categorical" ? rewards.categories : 2,
  };
}

/** The settings as the WebAssembly takes them. */
function flat(settings: Settings): Record<string, unknown> {
  const budget = settings.budget ?? { window: 2, days: 7, lifetime: 5 };
  return {
    consent: settings.consent,
    epsilonMax: settings.epsilonMax ?? 1,
    ...terms(settings.rewards ?? { kind: "binary" }),
    operatorKey: settings.operatorKey,
    witnessKey: settings.witnessKey,
    windowBudget: budget.window,
    windowDays: budget.days,
    lifetimeBudget: budget.lifetime,
    appKey: settings.appKey,
    keepPendingRewards: settings.keepPendingRewards ?? false,
    leastReleaseDelaySeconds: settings.leastReleaseDelaySeconds,
    reportOnceDays: settings.reportOnceDays,
    segments: Object.entries(settings.segments ?? {}).map(([name, value]) => ({ name, value })),
    metrics: Object.entries(settings.metrics ?? {}).map(([name, values]) => ({
      name,
      ...terms(values),
    })),
    refusalsExperiment: settings.refusals?.experiment,
    refusalsEpsilonMax: settings.refusals?.epsilonMax ?? 0.5,
  };
}
