// Where a client's state is kept: the page's IndexedDB, a directory of Node, or nowhere.

/** What is kept: the whole state, and the sums of rewards apart from it. */
export type Slot = "state" | "rewards";

/** A place for the state of one client at a time. */
export interface Store {
  /** What was written last, or `undefined`. */
  read(slot: Slot): Promise<Uint8Array | undefined>;
  /** Replaces what the slot had, as a whole or not at all; no bytes remove it. */
  write(slot: Slot, bytes: Uint8Array): Promise<void>;
  /**
   * Resolves once this client alone has the store, and keeps it until the signal aborts. Rejects when
   * the signal has aborted before. `lost` is called when somebody else takes it all the same.
   */
  own(until: AbortSignal, lost?: () => void): Promise<void>;
  /** The name by which the pages of an origin tell each other of the user's choice, if they do. */
  readonly channel?: string;
}

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** The IndexedDB of the page's origin; one tab at a time has it, by a Web Lock. */
export class PageStore implements Store {
  readonly #name: string;
  #database: Promise<IDBDatabase> | undefined;

  get channel(): string {
    return this.#name;
  }

  constructor(name: string) {
    this.#name = `bandana:${name}`;
  }

  #open(): Promise<IDBDatabase> {
    this.#database ??= new Promise((resolve, reject) => {
      const request = indexedDB.open(this.#name, 1);
      request.onupgradeneeded = () => request.result.createObjectStore("slots");
      request.onsuccess = () => {
        // A page that deletes it must not wait for this one.
        request.result.onversionchange = () => {
          request.result.close();
          this.#database = undefined;
        };
        request.result.onclose = () => (this.#database = undefined);
        resolve(request.result);
      };
      request.onerror = () => {
        // The next time it may be there.
        this.#database = undefined;
        reject(request.error);
      };
    });
    return this.#database;
  }

  async read(slot: Slot): Promise<Uint8Array | undefined> {
    const transaction = (await this.#open()).transaction("slots", "readonly");
    return done<Uint8Array | undefined>(transaction.objectStore("slots").get(slot));
  }

  async write(slot: Slot, bytes: Uint8Array): Promise<void> {
    const database = await this.#open();
    await new Promise<void>((resolve, reject) => {
      // It is on the disk when the transaction is complete; sums of rewards hold nothing up.
      const durability = slot === "rewards" ? "relaxed" : "strict";
      const transaction = database.transaction("slots", "readwrite", { durability });
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(transaction.error);
      const slots = transaction.objectStore("slots");
      if (bytes.length === 0) {
        slots.delete(slot);
      } else {
        slots.put(bytes, slot);
      }
    });
  }

  own(until: AbortSignal, lost?: () => void): Promise<void> {
    if (navigator.locks === undefined) {
      return Promise.reject(new Error("this page has no Web Locks; it must be served by https"));
    }
    return new Promise((resolve, reject) => {
      const held = async () => {
        resolve();
        await new Promise<void>((end) => until.addEventListener("abort", () => end()));
        (await this.#database?.catch(() => undefined))?.close();
        this.#database = undefined;
      };
      navigator.locks.request(this.#name, { signal: until }, held).catch((error: unknown) => {
        reject(error);
        // After it was held: another script of the page has stolen it.
        lost?.();
      });
    });
  }
}

/** A directory of Node, for one process at a time; left out of backups. */
export class DirectoryStore implements Store {
  readonly #path: string;
  #owned: { number: number; lost: (() => void) | undefined } | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  async #file(name: string): Promise<string> {
    const { join } = await import("node:path");
    return join(this.#path, name);
  }

  async read(slot: Slot): Promise<Uint8Array | undefined> {
    const { readFile } = await import("node:fs/promises");
    try {
      return new Uint8Array(await readFile(await this.#file(slot)));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") {
        return undefined;
      }
      throw error;
    }
  }

  async write(slot: Slot, bytes: Uint8Array): Promise<void> {
    const { open, rename, rm } = await import("node:fs/promises");
    await this.#check();
    const path = await this.#file(slot);
    // Sums of rewards hold nothing up.
    const isSynced = slot !== "rewards";
    if (bytes.length === 0) {
      await rm(path, { force: true });
    } else {
      const file = await open(`${path}.new`, "w", 0o600);
      try {
        await file.writeFile(bytes);
        await (isSynced && file.sync());
      } finally {
        await file.close();
      }
      await rename(`${path}.new`, path);
    }
    if (!isSynced) {
      return;
    }
    const directory = await open(this.#path, "r");
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  }

  /** The owner is the highest of the files `lock.N`; only the next one removes it. */
  async own(until: AbortSignal, lost?: () => void): Promise<void> {
    const { mkdir } = await import("node:fs/promises");
    await mkdir(this.#path, { recursive: true, mode: 0o700 });
    const me = await identity();
    for (;;) {
      until.throwIfAborted();
      const before = await this.#highest();
      const number = before + 1;
      if (!(await this.#isOwned(before, me)) && (await this.#claim(number, me))) {
        this.#owned = { number, lost };
        break;
      }
      await new Promise((resolve) => setTimeout(resolve, 50 + 100 * Math.random()).unref());
    }
    const beat = setInterval(() => void this.#beat(), BEAT_MS).unref();
    until.addEventListener("abort", () => {
      clearInterval(beat);
      void this.#release();
    });
  }

  #lock(number: number): Promise<string> {
    return this.#file(`lock.${number}`);
  }

  async #numbers(): Promise<number[]> {
    const { readdir } = await import("node:fs/promises");
    const names = (await readdir(this.#path)).map((name) => /^lock\.(\d+)$/.exec(name)?.[1]);
    return names.filter((number) => number !== undefined).map(Number);
  }

  async #highest(): Promise<number> {
    return Math.max(0, ...(await this.#numbers()));
  }

  /** Whether the lock of this number has an owner that runs. */
  async #isOwned(number: number, me: Identity): Promise<boolean> {
    const { readFile, stat } = await import("node:fs/promises");
    let owner: Identity;
    let age: number;
    try {
      owner = JSON.parse(await readFile(await this.#lock(number), "utf8")) as Identity;
      age = Date.now() - (await stat(await this.#lock(number))).mtimeMs;
    } catch {
      // There is none, it was given back, or it says nothing.
      return false;
    }
    const tells = age < BEATS_MISSED * BEAT_MS;
    if (owner.place !== me.place) {
      // A process that can't be seen from here, as in another container, tells that it runs.
      return tells;
    }
    if (owner.started === null) {
      // The number may be another process's by now.
      return isRunning(owner.pid) && tells;
    }
    return isRunning(owner.pid) && owner.started === (await startOf(owner.pid));
  }

  /** Makes the lock of this number; false: another one was first. */
  async #claim(number: number, me: Identity): Promise<boolean> {
    const { link, rm, writeFile } = await import("node:fs/promises");
    const mine = await this.#file(`lock-${me.pid}-${Math.random()}`);
    await writeFile(mine, JSON.stringify(me), { mode: 0o600 });
    try {
      // A link is made by one process alone, and has its content at once.
      await link(mine, await this.#lock(number));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "EEXIST") {
        return false;
      }
      throw error;
    } finally {
      await rm(mine, { force: true });
    }
    // Who was slow may have made a number again that a later owner has removed.
    const numbers = await this.#numbers();
    const isHighest = numbers.every((other) => other <= number);
    const old = isHighest ? numbers.filter((other) => other < number) : [number];
    for (const other of old) {
      await rm(await this.#lock(other), { force: true });
    }
    return isHighest;
  }

  /** Tells that this process runs, and whether it still has the directory. */
  async #beat(): Promise<void> {
    if (this.#owned !== undefined) {
      const { utimes } = await import("node:fs/promises");
      const now = new Date();
      await utimes(await this.#lock(this.#owned.number), now, now).catch(() => undefined);
      await this.#check().catch(() => undefined);
    }
  }

  /** Fails if another process has taken the directory, as from one that was held up for a minute. */
  async #check(): Promise<void> {
    const owned = this.#owned;
    if (owned === undefined || (await this.#highest()) !== owned.number) {
      this.#owned = undefined;
      owned?.lost?.();
      throw new Error("another process has the directory");
    }
  }

  async #release(): Promise<void> {
    const owned = this.#owned;
    this.#owned = undefined;
    if (owned !== undefined) {
      const { writeFile } = await import("node:fs/promises");
      // The number stays, so that it is not made again.
      await writeFile(await this.#lock(owned.number), "").catch(() => undefined);
    }
  }
}

/** A process, as others can recognise it. */
interface Identity {
  pid: number;
  /** When it was started, where that is known: numbers of processes come again. */
  started: string | null;
  /** Where its number means something: a boot, and a namespace of numbers. */
  place: string;
}

/** How often an owner tells that it runs. */
const BEAT_MS = 10_000;

/** After so many it is taken for dead by those who can't see it. */
const BEATS_MISSED = 6;

async function identity(): Promise<Identity> {
  const { readFile, readlink } = await import("node:fs/promises");
  const { hostname } = await import("node:os");
  const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8").catch(() => hostname());
  const space = await readlink("/proc/self/ns/pid").catch(() => "");
  return {
    pid: process.pid,
    started: await startOf(process.pid),
    place: `${boot.trim()} ${space}`,
  };
}

/** When a process was started, in ticks since the boot; `null`: not known. */
async function startOf(pid: number): Promise<string | null> {
  const { readFile } = await import("node:fs/promises");
  const line = await readFile(`/proc/${pid}/stat`, "utf8").catch(() => "");
  // After the name, which may hold spaces.
  return line.slice(line.lastIndexOf(")") + 2).split(" ")[19] ?? null;
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
