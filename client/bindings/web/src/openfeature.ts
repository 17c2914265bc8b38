// A provider for OpenFeature: a flag is an experiment, its variant the arm, and `track` the reward.

import { OpenFeatureEventEmitter, ProviderEvents } from "@openfeature/web-sdk";
import type {
  ErrorCode,
  EvaluationContext,
  JsonValue,
  Provider,
  ResolutionDetails,
  TrackingEventDetails,
} from "@openfeature/web-sdk";

import type { Bandana, Choice, Experiment } from "./index.js";

const BOOLEANS = new Map([
  ["true", true],
  ["on", true],
  ["false", false],
  ["off", false],
]);

/** The experiments of each event. */
type Events = Readonly<Record<string, readonly string[]>>;

/**
 * Gives the arms of a client as flags. A text flag has the arm's label as its value; a number flag the
 * number that the label is; a boolean one true for the labels `true` and `on`, false for `false` and
 * `off`. The evaluation context is not looked at, and never leaves: arms are drawn by the device alone.
 *
 * `rewards` says for which experiments an event is a reward: its value, or 1; `metrics` for which it is
 * a value of the metric that has its name. Only arms that this provider has given are rewarded.
 *
 * The provider is ready when each of these experiments has an arm to give. `setProviderAndWait` waits for
 * that, at most `readySeconds`, and throws with what is in the way. An arm that comes later makes the provider
 * ready then; while one is missing again, its status is an error. A flag whose arm comes or goes is told as a
 * configuration that has changed.
 */
export class BandanaProvider implements Provider {
  readonly metadata = { name: "bandana" };
  readonly runsOn = "client";
  readonly events = new OpenFeatureEventEmitter();
  readonly #client: Bandana;
  readonly #rewards: ReadonlyMap<string, readonly string[]>;
  readonly #metrics: ReadonlyMap<string, readonly string[]>;
  readonly #shown = new Map<string, Choice>();
  readonly #experiments: readonly Experiment[];
  readonly #readySeconds: number;
  /** What ends the subscription to each experiment. */
  readonly #followed = new Map<string, () => void>();
  /** What the SDK was told last; `undefined`: it waits, and is told by {@link initialize}. */
  #isReady: boolean | undefined;

  constructor(
    client: Bandana,
    { rewards, metrics = {}, readySeconds = 10 }: { rewards: Events; metrics?: Events; readySeconds?: number },
  ) {
    for (const [what, events] of Object.entries({ rewards, metrics })) {
      const isList = (names: unknown) => Array.isArray(names) && names.length > 0;
      if (typeof events !== "object" || events === null || !Object.values(events).every(isList)) {
        throw new TypeError(`${what}: give each event a list of experiments, such as { purchase: ["button-colour"] }`);
      }
    }
    this.#client = client;
    this.#readySeconds = readySeconds;
    this.#rewards = new Map(Object.entries(rewards));
    this.#metrics = new Map(Object.entries(metrics));
    const names = new Set([...this.#rewards.values(), ...this.#metrics.values()].flat());
    this.#experiments = [...names].map((name) => client.experiment(name));
  }

  async initialize(): Promise<void> {
    this.#isReady = undefined;
    this.#experiments.forEach((experiment) => this.#follow(experiment));
    try {
      await Promise.all(this.#experiments.map((experiment) => experiment.ready(this.#readySeconds)));
      this.#isReady = true;
    } catch (error) {
      this.#isReady = false;
      throw error;
    }
  }

  async onClose(): Promise<void> {
    this.#followed.forEach((end) => end());
    this.#followed.clear();
  }

  #follow(experiment: Experiment): void {
    const { name } = experiment;
    if (!this.#followed.has(name)) {
      this.#followed.set(name, experiment.onChange(() => this.#changed(name)));
    }
  }

  #changed(name: string): void {
    this.events.emit(ProviderEvents.ConfigurationChanged, { flagsChanged: [name] });
    const missing = this.#experiments.find((experiment) => experiment.whyNotReady() !== null);
    const isReady = missing === undefined;
    if (this.#isReady === undefined || this.#isReady === isReady) {
      return;
    }
    this.#isReady = isReady;
    if (isReady) {
      this.events.emit(ProviderEvents.Ready);
    } else {
      this.events.emit(ProviderEvents.Error, { message: `${missing.name}: ${missing.whyNotReady()}` });
    }
  }

  #resolve<T>(
    flag: string,
    otherwise: T,
    convert: (label: string) => T | undefined,
  ): ResolutionDetails<T> {
    let experiment: Experiment;
    try {
      experiment = this.#client.experiment(flag);
    } catch (error) {
      return failed(otherwise, "FLAG_NOT_FOUND", (error as Error).message);
    }
    this.#follow(experiment);
    // Before an arm is drawn: its report would be of an arm that is not shown.
    const other = experiment.labels.find((label) => convert(label) === undefined);
    if (other !== undefined) {
      return failed(otherwise, "TYPE_MISMATCH", `the arm "${other}" is no ${typeof otherwise}`);
    }
    const choice = experiment.choose();
    const value = choice.label === null ? undefined : convert(choice.label);
    if (choice.label === null || value === undefined) {
      const why = choice.reason ?? "";
      return { value: otherwise, reason: "DEFAULT", flagMetadata: { why } };
    }
    this.#shown.set(flag, choice);
    return { value, variant: choice.label, reason: "SPLIT" };
  }

  resolveBooleanEvaluation(flag: string, otherwise: boolean): ResolutionDetails<boolean> {
    return this.#resolve(flag, otherwise, (label) => BOOLEANS.get(label.toLowerCase()));
  }

  resolveStringEvaluation(flag: string, otherwise: string): ResolutionDetails<string> {
    return this.#resolve(flag, otherwise, (label) => label);
  }

  resolveNumberEvaluation(flag: string, otherwise: number): ResolutionDetails<number> {
    const convert = (label: string) => {
      const number = Number(label);
      return label.trim() === "" || Number.isNaN(number) ? undefined : number;
    };
    return this.#resolve(flag, otherwise, convert);
  }

  resolveObjectEvaluation<T extends JsonValue>(_flag: string, otherwise: T): ResolutionDetails<T> {
    const message = "an arm has a label: ask for a text, a number or a boolean";
    return failed(otherwise, "TYPE_MISMATCH", message);
  }

  track(event: string, _context?: EvaluationContext, details?: TrackingEventDetails): void {
    const value = details?.value ?? 1;
    for (const name of this.#rewards.get(event) ?? []) {
      this.#shown.get(name)?.reward(value);
    }
    for (const name of this.#metrics.get(event) ?? []) {
      this.#shown.get(name)?.measure(event, value);
    }
  }
}

function failed<T>(value: T, code: string, errorMessage: string): ResolutionDetails<T> {
  return { value, reason: "ERROR", errorCode: code as ErrorCode, errorMessage };
}
