// What a client tells developers: policies, refusals, its store and uploads; never a reward or an arm.

import type { Status } from "./index.js";

/** Takes a line of the log: an event, and words. */
export type Logger = (line: string) => void;

/** A log that tells what has changed. */
export class Log {
  readonly #logger: Logger | null;
  readonly #ready = new Set<string>();
  #before: Partial<Status> = {};

  constructor(logger: Logger | null) {
    this.#logger = logger;
  }

  get isUsed(): boolean {
    return this.#logger !== null;
  }

  tell(event: string, words: string): void {
    try {
      this.#logger?.(`bandana: ${event}: ${words}`);
    } catch {
      // An app's logger does not end its client.
    }
  }

  /** Tells when an experiment has its first policy. */
  experiment(name: string, isReady: () => boolean): void {
    if (!this.#ready.has(name) && isReady()) {
      this.#ready.add(name);
      this.tell("policy", `${name} has its first policy`);
    }
  }

  /** Tells what differs from the last status. */
  status(now: Status): void {
    const before = this.#before;
    this.#before = now;
    if (now.standing !== before.standing || now.trouble !== before.trouble) {
      this.tell("standing", now.trouble === null ? now.standing : `${now.standing}: ${now.trouble}`);
    }
    if (now.lastRefusal !== null && now.lastRefusal !== before.lastRefusal) {
      this.tell("refusal", now.lastRefusal);
    }
    if (now.lastError !== null && now.lastError !== before.lastError) {
      this.tell("failure", now.lastError);
    }
    if (now.uploadsAccepted > (before.uploadsAccepted ?? 0)) {
      this.tell("upload", `${now.uploadsAccepted} counted since the start`);
    }
    if (now.uploadsRefused > (before.uploadsRefused ?? 0)) {
      this.tell("upload", `${now.uploadsRefused} refused since the start`);
    }
  }
}

export function inWords(error: unknown): string {
  return error instanceof Error ? error.message || error.name : String(error);
}
