// The settings of a client: what they are, that they are nothing else, and as the WebAssembly takes them.

import type { Logger } from "./log.js";
import type { Store } from "./store.js";
import type { Transport } from "./transport.js";

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
  /** Public key of a countersigner, who must have signed too. */
  countersignerKey?: string;
  /**
   * The public log that must say what the server tells: its key, the keys of its witnesses, and how many
   * of these must have seen it, by default more than half. The same for all pages, or nothing is taken.
   */
  log?: { key: string; witnesses: string[]; quorum?: number };
  /**
   * The most that reports may cost an installation, in nats, in any so many days and in all. A page's
   * store can be deleted, and the budget then begins anew: so the default is small, 2 in 7 days
   * and 5 in all.
   */
  budget?: { window: number; days: number; lifetime: number };
  /** The key of the app, the same for all installations. */
  appKey?: string;
  /**
   * Whether the rewards of assignments whose windows last are kept in the store, so that a page that is
   * left or loaded again does not lose them. They lie there as they are until their window ends. Default:
   * true. With `false` no raw reward rests on the disk, and an assignment that was open when its page was
   * left counts as one without those rewards.
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
  /**
   * Experiments whose arm is given, by its label, for developers and tests: the arm is shown, and nothing
   * about the experiment is fetched or reported.
   */
  forced?: Readonly<Record<string, string>>;
  /**
   * Takes lines about policies, refusals, the store and uploads, never about rewards or arms; `null`: none.
   * The default is `console.debug` in a page; in Node, NODE_DEBUG=bandana shows them.
   */
  logger?: Logger | null;
}

/** What a setting is: a type, and for an object those of its properties, or that of all of them. */
type Kind = { is: string; of?: Readonly<Record<string, Kind>>; each?: Kind };

const NUMBER = { is: "number" };
const TEXT = { is: "string" };
const REWARDS = { is: "object", of: { kind: TEXT, low: NUMBER, high: NUMBER, categories: NUMBER } };

const KINDS: Readonly<Record<keyof Settings, Kind>> = {
  server: { is: "string or function" },
  consent: { is: "boolean" },
  store: { is: "string or object or null" },
  epsilonMax: NUMBER,
  rewards: REWARDS,
  operatorKey: TEXT,
  countersignerKey: TEXT,
  log: { is: "object", of: { key: TEXT, witnesses: { is: "array", each: TEXT }, quorum: NUMBER } },
  budget: { is: "object", of: { window: NUMBER, days: NUMBER, lifetime: NUMBER } },
  appKey: TEXT,
  keepPendingRewards: { is: "boolean" },
  leastReleaseDelaySeconds: NUMBER,
  reportOnceDays: NUMBER,
  segments: { is: "object", each: TEXT },
  metrics: { is: "object", each: REWARDS },
  refusals: { is: "object", of: { experiment: TEXT, epsilonMax: NUMBER } },
  forced: { is: "object", each: TEXT },
  logger: { is: "function or null" },
};

/**
 * The settings, if each is known and of its type.
 *
 * @throws TypeError for one that is not, with what was expected.
 */
export function checked(settings: Settings): Settings {
  check("settings", settings, { is: "object", of: KINDS });
  for (const name of ["server", "consent"] as const) {
    if (settings[name] === undefined) {
      throw new TypeError(`${name}: it must be given, as ${KINDS[name].is}`);
    }
  }
  return settings;
}

function check(name: string, value: unknown, kind: Kind): void {
  const type = value === null ? "null" : Array.isArray(value) ? "array" : typeof value;
  if (!kind.is.split(" or ").includes(type)) {
    throw new TypeError(`${name}: ${kind.is} was expected, not ${type}`);
  }
  if (kind.of === undefined && kind.each === undefined) {
    return;
  }
  for (const [key, one] of Object.entries(value as object)) {
    const place = name === "settings" ? key : `${name}.${key}`;
    const expected = kind.each ?? kind.of?.[key];
    if (expected === undefined) {
      const known = Object.keys(kind.of ?? {});
      const like = known.find((other) => other.toLowerCase() === key.toLowerCase().replace(/[_-]/g, ""));
      const hint = like === undefined ? `known are ${known.join(", ")}` : `did you mean ${like}?`;
      throw new TypeError(`${place}: no setting has this name; ${hint}`);
    }
    if (one !== undefined) {
      check(place, one, expected);
    }
  }
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
export function flat(settings: Settings): Record<string, unknown> {
  const budget = settings.budget ?? { window: 2, days: 7, lifetime: 5 };
  return {
    consent: settings.consent,
    epsilonMax: settings.epsilonMax ?? 1,
    ...terms(settings.rewards ?? { kind: "binary" }),
    operatorKey: settings.operatorKey,
    countersignerKey: settings.countersignerKey,
    logKey: settings.log?.key,
    logWitnesses: settings.log?.witnesses.join(" "),
    logQuorum: settings.log?.quorum,
    windowBudget: budget.window,
    windowDays: budget.days,
    lifetimeBudget: budget.lifetime,
    appKey: settings.appKey,
    keepPendingRewards: settings.keepPendingRewards ?? true,
    leastReleaseDelaySeconds: settings.leastReleaseDelaySeconds,
    reportOnceDays: settings.reportOnceDays,
    segments: Object.entries(settings.segments ?? {}).map(([name, value]) => ({ name, value })),
    metrics: Object.entries(settings.metrics ?? {}).map(([name, values]) => ({
      name,
      ...terms(values),
    })),
    refusalsExperiment: settings.refusals?.experiment,
    refusalsEpsilonMax: settings.refusals?.epsilonMax ?? 0.5,
    forced: Object.entries(settings.forced ?? {}).map(([name, value]) => ({ name, value })),
  };
}

/** A name, or one that no experiment and no metric can have. */
export function text(name: unknown): string {
  return typeof name === "string" ? name : "";
}

/** The number that a reward is. What is beyond all numbers is beyond each range, as the largest of them. */
export function finite(reward: unknown): number {
  const isNumber = ["number", "boolean", "bigint"].includes(typeof reward);
  return isNumber ? Math.max(-Number.MAX_VALUE, Math.min(Number.MAX_VALUE, Number(reward))) : NaN;
}

/** What the core says of a setting, by the setting's name in this language. */
export function named(error: unknown): unknown {
  const names: Record<string, string> = {
    epsilon_max: "epsilonMax",
    app_key: "appKey",
    signers: "operatorKey, countersignerKey",
    windowBudget: "budget.window",
    windowDays: "budget.days",
    lifetimeBudget: "budget.lifetime",
    logQuorum: "log.quorum",
    rewardLow: "rewards.low",
    rewardHigh: "rewards.high",
    categories: "rewards.categories",
    refusalsEpsilonMax: "refusals.epsilonMax",
  };
  if (error instanceof Error) {
    error.message = error.message.replace(/^\w+/, (name) => names[name] ?? name);
  }
  return error;
}
