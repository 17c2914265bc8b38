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
   * the signal has aborted before.
   */
  own(until: AbortSignal): Promise<void>;
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
        resolve(request.result);
      };
      request.onerror = () => reject(request.error);
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
      // It is on the disk when the transaction is complete.
      const transaction = database.transaction("slots", "readwrite", { durability: "strict" });
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

  own(until: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const held = async () => {
        resolve();
        await new Promise<void>((end) => until.addEventListener("abort", () => end()));
        (await this.#database?.catch(() => undefined))?.close();
        this.#database = undefined;
      };
      navigator.locks.request(this.#name, { signal: until }, held).catch(reject);
    });
  }
}

/** A directory of Node, for one process at a time; left out of backups. */
export class DirectoryStore implements Store {
  readonly #path: string;

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
    const path = await this.#file(slot);
    if (bytes.length === 0) {
      await rm(path, { force: true });
    } else {
      const file = await open(`${path}.new`, "w", 0o600);
      try {
        await file.writeFile(bytes);
        await file.sync();
      } finally {
        await file.close();
      }
      await rename(`${path}.new`, path);
    }
    const directory = await open(this.#path, "r");
    try {
      await directory.sync();
    } finally {
      await directory.close();
    }
  }

  async own(until: AbortSignal): Promise<void> {
    const { link, mkdir, readFile, rm, writeFile } = await import("node:fs/promises");
    await mkdir(this.#path, { recursive: true, mode: 0o700 });
    const lock = await this.#file("lock");
    const mine = `${lock}.${process.pid}.${Math.random()}`;
    await writeFile(mine, String(process.pid), { mode: 0o600 });
    try {
      for (;;) {
        until.throwIfAborted();
        try {
          // A link is made by one process alone, and has its content at once.
          await link(mine, lock);
          break;
        } catch (error) {
          if ((error as NodeJS.ErrnoException).code !== "EEXIST") {
            throw error;
          }
        }
        const owner = Number(await readFile(lock, "utf8").catch(() => "0"));
        if (owner !== process.pid && owner > 0 && !isRunning(owner)) {
          await rm(lock, { force: true });
          continue;
        }
        await new Promise((resolve) => setTimeout(resolve, 100).unref());
      }
    } finally {
      await rm(mine, { force: true });
    }
    until.addEventListener("abort", () => void rm(lock, { force: true }));
  }
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
