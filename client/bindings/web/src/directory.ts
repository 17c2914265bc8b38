// A client's state in a directory of Node.

import {
  closeSync,
  fsyncSync,
  openSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import {
  link,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  rm,
  stat,
  utimes,
  writeFile,
} from "node:fs/promises";
import { hostname } from "node:os";
import { join } from "node:path";

import type { Slot, Store } from "./store.js";

/** A directory of Node, for one process at a time; left out of backups. */
export class DirectoryStore implements Store {
  readonly #path: string;
  #owned: { number: number; lost: (() => void) | undefined } | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  #file(name: string): string {
    return join(this.#path, name);
  }

  async read(slot: Slot): Promise<Uint8Array | undefined> {
    try {
      return new Uint8Array(await readFile(this.#file(slot)));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") {
        return undefined;
      }
      throw error;
    }
  }

  async write(slot: Slot, bytes: Uint8Array): Promise<void> {
    await this.#check();
    const path = this.#file(slot);
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
    try {
      await this.syncNames(this.#path);
    } catch (error) {
      // Windows and some mounts can't; their own journals keep names.
      if (!UNABLE.has((error as NodeJS.ErrnoException).code ?? "")) {
        throw error;
      }
    }
  }

  /** @internal Tests have file systems that can't. */
  protected async syncNames(path: string): Promise<void> {
    const directory = await open(path, "r");
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  }

  /** Writes at once, for a program that ends. */
  writeNow(slot: Slot, bytes: Uint8Array): void {
    const highest = Math.max(0, ...numbers(readdirSync(this.#path)));
    if (highest !== this.#owned?.number) {
      throw new Error("another process has the directory");
    }
    const path = this.#file(slot);
    if (bytes.length === 0) {
      rmSync(path, { force: true });
      return;
    }
    // Beside what a write that has begun may still have open.
    const file = openSync(`${path}.last`, "w", 0o600);
    try {
      writeFileSync(file, bytes);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(`${path}.last`, path);
  }

  /** The owner is the highest of the files `lock.N`; only the next one removes it. */
  async own(until: AbortSignal, lost?: () => void, busy?: () => void): Promise<void> {
    let isBusy = false;
    await mkdir(this.#path, { recursive: true, mode: 0o700 });
    const me = await identity();
    for (;;) {
      until.throwIfAborted();
      const before = await this.#highest();
      const number = before + 1;
      if (await this.#isOwned(before, me)) {
        if (!isBusy) {
          isBusy = true;
          busy?.();
        }
      } else if (await this.#claim(number, me)) {
        this.#owned = { number, lost };
        break;
      }
      await new Promise((resolve) => setTimeout(resolve, 50 + 100 * Math.random()).unref());
    }
    if (until.aborted) {
      // It ended while the lock was made, and no signal will tell.
      await this.#release();
      until.throwIfAborted();
    }
    const beat = setInterval(() => void this.#beat(), BEAT_MS).unref();
    until.addEventListener("abort", () => {
      clearInterval(beat);
      void this.#release();
    });
  }

  #lock(number: number): string {
    return this.#file(`lock.${number}`);
  }

  async #numbers(): Promise<number[]> {
    return numbers(await readdir(this.#path));
  }

  async #highest(): Promise<number> {
    return Math.max(0, ...(await this.#numbers()));
  }

  /** Whether the lock of this number has an owner that runs. */
  async #isOwned(number: number, me: Identity): Promise<boolean> {
    let owner: Identity;
    let age: number;
    try {
      owner = JSON.parse(await readFile(this.#lock(number), "utf8")) as Identity;
      age = Date.now() - (await stat(this.#lock(number))).mtimeMs;
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
    const isSame = isRunning(owner.pid) && owner.started === (await startOf(owner.pid));
    // A worker can end, and its process go on.
    const { thread } = owner;
    return isSame && (thread === undefined || thread.started === (await startOf(thread.place)));
  }

  /** Makes the lock of this number; false: another one was first. */
  async #claim(number: number, me: Identity): Promise<boolean> {
    const mine = this.#file(`lock-${me.pid}-${Math.random()}`);
    try {
      // On a full disk it has no content, and is removed too.
      await writeFile(mine, JSON.stringify(me), { mode: 0o600 });
      await this.#make(mine, this.#lock(number), JSON.stringify(me));
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
      await rm(this.#lock(other), { force: true });
    }
    return isHighest;
  }

  /** Makes a file that was not there, from another one of this content. */
  async #make(mine: string, lock: string, content: string): Promise<void> {
    try {
      // A link is made by one process alone, and has its content at once.
      await this.link(mine, lock);
    } catch (error) {
      if (!UNABLE.has((error as NodeJS.ErrnoException).code ?? "")) {
        throw error;
      }
      // As on FAT. Whoever looks before the content is there makes the next number, and has the directory.
      await writeFile(lock, content, { flag: "wx", mode: 0o600 });
      await new Promise((resolve) => setTimeout(resolve, LINKLESS_MS));
    }
  }

  /** @internal Tests have file systems without links. */
  protected link(from: string, to: string): Promise<void> {
    return link(from, to);
  }

  /** Tells that this process runs, and whether it still has the directory. */
  async #beat(): Promise<void> {
    if (this.#owned !== undefined) {
      const now = new Date();
      await utimes(this.#lock(this.#owned.number), now, now).catch(() => undefined);
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
      // The number stays, so that it is not made again.
      await writeFile(this.#lock(owned.number), "").catch(() => undefined);
    }
  }
}

function numbers(names: string[]): number[] {
  const found = names.map((name) => /^lock\.(\d+)$/.exec(name)?.[1]);
  return found.filter((number) => number !== undefined).map(Number);
}

/** What a file system answers that has no hard links or can't sync names, or for an account that may not. */
const UNABLE = new Set(["EPERM", "EACCES", "ENOTSUP", "EOPNOTSUPP", "ENOSYS", "EMLINK", "EINVAL", "EISDIR"]);

/** How long a claim without a link waits for one that came between, in milliseconds. */
const LINKLESS_MS = 200;

/** A process, as others can recognise it. */
interface Identity {
  pid: number;
  /** When it was started, where that is known: numbers of processes come again. */
  started: string | null;
  /** Where its number means something: a boot, and a namespace of numbers. */
  place: string;
  /** The thread that has the directory, where that is known: its place below `/proc`, and its start. */
  thread?: { place: string; started: string };
}

/** How often an owner tells that it runs. */
const BEAT_MS = 10_000;

/** After so many it is taken for dead by those who can't see it. */
const BEATS_MISSED = 6;

async function identity(): Promise<Identity> {
  const thread = await thisThread();
  const boot = await readFile("/proc/sys/kernel/random/boot_id", "utf8").catch(() => hostname());
  const space = await readlink("/proc/self/ns/pid").catch(() => "");
  return {
    pid: process.pid,
    started: await startOf(process.pid),
    place: `${boot.trim()} ${space}`,
    ...(thread && { thread }),
  };
}

async function thisThread(): Promise<Identity["thread"]> {
  let place: string;
  try {
    // Without a wait: a call that waits is another thread's.
    place = readlinkSync("/proc/thread-self");
  } catch {
    return undefined;
  }
  const started = await startOf(place);
  return started === null ? undefined : { place, started };
}

/** When a process or a thread was started, in ticks since the boot; `null`: not known. */
async function startOf(place: number | string): Promise<string | null> {
  const line = await readFile(`/proc/${place}/stat`, "utf8").catch(() => "");
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
