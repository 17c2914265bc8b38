// Where a client's state is kept: the page's IndexedDB, or another place of this form.

/** What is kept: the whole state, and the sums of rewards apart from it. */
export type Slot = "state" | "rewards";

/** A place for the state of one client at a time. */
export interface Store {
  /** What was written last, or `undefined`. */
  read(slot: Slot): Promise<Uint8Array | undefined>;
  /** Replaces what the slot had, as a whole or not at all; no bytes remove it. */
  write(slot: Slot, bytes: Uint8Array): Promise<void>;
  /** Writes at once, for a program that ends without a wait. A store of a page has no such way. */
  writeNow?(slot: Slot, bytes: Uint8Array): void;
  /**
   * Resolves once this client alone has the store, and keeps it until the signal aborts. Rejects when
   * the signal has aborted before. `lost` is called when somebody else takes it all the same. Call `busy`
   * once you know that somebody else has it: a start waits for a store that is slow, and not for that one.
   */
  own(until: AbortSignal, lost?: () => void, busy?: () => void): Promise<void>;
  /** The name by which the pages of an origin tell each other of the user's choice, if they do. */
  readonly channel?: string;
}

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

/** Opens a database. `ended` is called when its connection ends, as far as the browser tells. */
function opened(name: string, ended: () => void): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    // This throws where the user refuses storage.
    const request = indexedDB.open(name, 1);
    request.onupgradeneeded = () => request.result.createObjectStore("slots");
    request.onsuccess = () => {
      // A page that deletes it must not wait for this one.
      request.result.onversionchange = ended;
      request.result.onclose = ended;
      resolve(request.result);
    };
    request.onerror = () => reject(request.error);
  });
}

function put(database: IDBDatabase, slot: Slot, bytes: Uint8Array): Promise<void> {
  return new Promise((resolve, reject) => {
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
    // At once: a page that is left hears of no request, and what it has not committed is undone.
    transaction.commit?.();
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

  /** Does some work with the database. After a failure it is opened again: a connection ends without a word. */
  async #use<T>(work: (database: IDBDatabase) => Promise<T>): Promise<T> {
    const opening: Promise<IDBDatabase> = this.#database ?? opened(this.#name, () => this.#forget(opening));
    this.#database = opening;
    try {
      return await work(await opening);
    } catch (error) {
      this.#forget(opening);
      throw error;
    }
  }

  #forget(opening: Promise<IDBDatabase>): void {
    if (this.#database === opening) {
      this.#database = undefined;
    }
    // It ends after what is under way.
    opening.then(
      (database) => database.close(),
      () => undefined,
    );
  }

  read(slot: Slot): Promise<Uint8Array | undefined> {
    return this.#use((database) => {
      const transaction = database.transaction("slots", "readonly");
      return done<Uint8Array | undefined>(transaction.objectStore("slots").get(slot));
    });
  }

  write(slot: Slot, bytes: Uint8Array): Promise<void> {
    return this.#use((database) => put(database, slot, bytes));
  }

  own(until: AbortSignal, lost?: () => void, busy?: () => void): Promise<void> {
    if (navigator.locks === undefined) {
      return Promise.reject(new Error("this page has no Web Locks; it must be served by https"));
    }
    return new Promise((resolve, reject) => {
      let isHeld = false;
      const held = async () => {
        if (until.aborted) {
          // The client has ended in this moment, and no signal will tell.
          throw new Error("closed");
        }
        isHeld = true;
        resolve();
        await new Promise<void>((end) => until.addEventListener("abort", () => end()));
        (await this.#database?.catch(() => undefined))?.close();
        this.#database = undefined;
      };
      const taken = async () => {
        let isFree = true;
        // Whoever can't have it at once hears of that at once.
        await navigator.locks.request(this.#name, { ifAvailable: true }, (lock) => {
          isFree = lock !== null;
          return isFree ? held() : undefined;
        });
        if (!isFree) {
          busy?.();
          await navigator.locks.request(this.#name, { signal: until }, held);
        }
      };
      taken().catch((error: unknown) => {
        reject(error);
        if (isHeld) {
          // Another script of the page has stolen it.
          lost?.();
        }
      });
    });
  }
}

/** The store that the settings name. */
export function storeOf(store: string | Store | null | undefined): Store | null {
  if (store === undefined) {
    if (!hasDatabase()) {
      throw new TypeError("store: there is no IndexedDB here; give a store of your own (in Node a DirectoryStore), or null for none");
    }
    return new PageStore("default");
  }
  return typeof store === "string" ? new PageStore(store) : store;
}

function hasDatabase(): boolean {
  try {
    return typeof indexedDB !== "undefined";
  } catch {
    // The user refuses it to this page, which the store says once it is asked.
    return true;
  }
}
