// What the pages of an origin tell each other: the user's choice, and what they ask the one with the store.

/** A choice as one page tells it to another. */
export interface Told {
  label: string | null;
  arm: number | null;
  assignment: bigint | null;
  reported: boolean;
  reason: string | null;
}

/** What a page does for another one. */
interface Page {
  /** Whether this page has the store. */
  has(): boolean;
  choose(experiment: string): Told;
  add(assignment: bigint, metric: string | null, value: number): void;
  follow(wish: "in" | "out"): void;
}

type Message =
  | "in"
  | "out"
  | "here"
  | { ask: string }
  | { told: string; choice: Told }
  | { add: bigint; metric: string | null; value: number };

/** A page that has the store and has not answered for so long may be frozen, in milliseconds. */
const ANSWER_MS = 1_000;

/** Between questions about one experiment, in milliseconds. */
const ASK_MS = 50;

/** The other pages of an origin. Nothing of this leaves the device. */
export class Tabs {
  readonly #channel: BroadcastChannel;
  readonly #told = new Map<string, Told>();
  /** When an experiment was first asked for without an answer, and last. */
  readonly #asked = new Map<string, { first: number; last: number }>();

  constructor(name: string, page: Page) {
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }: { data: Message }) => {
      if (data === "in" || data === "out") {
        page.follow(data);
      } else if (typeof data !== "object" || data === null) {
        return;
      } else if ("told" in data) {
        this.#told.set(data.told, data.choice);
        this.#asked.delete(data.told);
      } else if (!page.has()) {
        return;
      } else if ("ask" in data) {
        this.#send({ told: data.ask, choice: page.choose(data.ask) });
      } else if ("add" in data) {
        page.add(data.add, data.metric, data.value);
      }
    };
  }

  #send(message: Message): void {
    this.#channel.postMessage(message);
  }

  /** Tells the user's choice. */
  wish(wish: "in" | "out"): void {
    this.#send(wish);
  }

  /** Tells that this page is shown. A page that a browser keeps for its back button ends by that, and its store
   * is free. */
  here(): void {
    this.#send("here");
  }

  /** Asks the page that has the store what to show, and gives what {@link told} does. */
  choose(experiment: string): Told | null {
    const now = Date.now();
    const asked = this.#asked.get(experiment) ?? { first: now, last: 0 };
    if (now - asked.last >= ASK_MS) {
      this.#asked.set(experiment, { ...asked, last: now });
      this.#send({ ask: experiment });
    }
    return this.told(experiment);
  }

  /** What the page with the store told last, or that it has not yet; `null`: not asked, or silent. */
  told(experiment: string): Told | null {
    const [told, asked] = [this.#told.get(experiment), this.#asked.get(experiment)];
    const isSilent = asked === undefined || Date.now() - asked.first >= ANSWER_MS;
    if (told !== undefined && (told.label !== null || !isSilent)) {
      return told;
    }
    const reason = "the tab that has the store has not answered yet";
    return isSilent ? null : { label: null, arm: null, assignment: null, reported: false, reason };
  }

  /** Hands a reward, or a value of a metric, to the page with the store. Returns whether it gave the arm. */
  add(assignment: bigint, metric: string | null, value: number): boolean {
    const isTold = [...this.#told.values()].some((told) => told.assignment === assignment);
    if (isTold) {
      this.#send({ add: assignment, metric, value });
    }
    return isTold;
  }

  close(): void {
    this.#channel.close();
  }
}
