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
      // At once: a page that is left hears of no request, and what it has not committed is undone.
      transaction.commit?.();
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
