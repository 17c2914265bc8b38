// What becomes of rewards and of the store when things end, fail, or are refused.

import assert from "node:assert/strict";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { Worker } from "node:worker_threads";

import { PageStore } from "../dist/index.js";
import { Bandana, DirectoryStore } from "../dist/node.js";
import { Core } from "../dist/wasm/core.js";

const scratch = await mkdtemp(join(tmpdir(), "bandana-"));
after(() => rm(scratch, { recursive: true, force: true, maxRetries: 5 }));

function start(settings) {
  return Bandana.start({ server: async () => null, consent: true, store: null, ...settings });
}

async function until(isSo) {
  for (const end = Date.now() + 60_000; !(await isSo()); ) {
    assert.ok(Date.now() < end);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** Replaces properties of an object for as long as `work` lasts. */
async function replaced(object, properties, work) {
  const before = Object.getOwnPropertyDescriptors(object);
  for (const [name, value] of Object.entries(properties)) {
    Object.defineProperty(object, name, { configurable: true, ...value });
  }
  try {
    await work();
  } finally {
    for (const name of Object.keys(properties)) {
      delete object[name];
      if (name in before) {
        Object.defineProperty(object, name, before[name]);
      }
    }
  }
}

test("numbers of each kind are rewards, and what is none is refused and counted", async () => {
  const given = [];
  // An assignment whose window lasts.
  const reward = (_assignment, value) => given.push(value) > 0;
  const measure = (_assignment, _metric, value) => given.push(value) > 0;
  await replaced(Core.prototype, { reward: { value: reward }, measure: { value: measure } }, async () => {
    const app = await start();
    for (const [one, value, isTaken] of [
      [0.5, 0.5, true],
      [true, 1, true],
      [false, 0, true],
      [3n, 3, true],
      // Beyond each range: the nearer end, unless the experiment refuses it.
      [Infinity, Number.MAX_VALUE, true],
      [-Infinity, -Number.MAX_VALUE, true],
      [-(10n ** 400n), -Number.MAX_VALUE, true],
      // The core counts it as refused.
      [NaN, NaN, false],
      ["1", NaN, false],
      [null, NaN, false],
      [undefined, NaN, false],
      [{}, NaN, false],
      [Symbol("1"), NaN, false],
    ]) {
      assert.equal(app.reward(1n, one), isTaken, String(one));
      assert.equal(app.measure(1n, "minutes", one), isTaken, String(one));
      assert.deepEqual(given.splice(0), [value, value]);
    }
    await app.close();
    assert.equal(app.reward(1n, 1), false, "nothing would keep it");
  });
});

test("a reward that comes while others are being written is kept before the end", async () => {
  // A core whose sums are those of all rewards; one write of them is under way at a time.
  let [sum, isChanged, isUnderWay] = [0, false, false];
  const core = {
    reward: {
      value: (_assignment, value) => {
        [sum, isChanged] = [sum + value, true];
        return true;
      },
    },
    next_write: {
      value: () => {
        if (!isChanged || isUnderWay) {
          return undefined;
        }
        [isChanged, isUnderWay] = [false, true];
        return { number: 1, slot: "rewards", body: new Uint8Array([sum]), free: () => {} };
      },
    },
    written: { value: () => (isUnderWay = false) },
  };
  await replaced(Core.prototype, core, async () => {
    for (const end of ["written", "close"]) {
      let [kept, goesOn] = [0, undefined];
      const store = {
        read: async () => undefined,
        write: async (slot, [first]) => {
          if (slot !== "rewards") {
            return;
          }
          // The first one waits for what comes meanwhile.
          await new Promise((resolve) => (goesOn === undefined ? (goesOn = resolve) : setTimeout(resolve, 20)));
          kept = first;
        },
        own: async () => {},
      };
      const app = await start({ store });
      app.reward(1n, 1);
      await until(() => goesOn !== undefined);
      app.reward(1n, 1);
      const ends = app[end]();
      // It waits for the first one by now.
      await new Promise((resolve) => setImmediate(resolve));
      goesOn();
      await ends;
      assert.equal(kept, sum, end);
      await app.close();
    }
  });
});

test("a closed client is waited for no longer", async () => {
  const app = await start();
  const experiment = app.experiment("colour");
  const begin = Date.now();
  const waits = assert.rejects(experiment.ready(60), /colour/);
  await app.close();
  await waits;
  await assert.rejects(experiment.ready(60), /colour/);
  assert.ok(Date.now() - begin < 30_000);
});

test("a folder whose names can't be synced keeps what is written; a failing disk does not", async () => {
  class Mount extends DirectoryStore {
    async syncNames() {
      throw Object.assign(new Error(this.code), { code: this.code });
    }
  }
  const end = new AbortController();
  const store = new Mount(join(scratch, "mount"));
  await store.own(end.signal);
  for (const code of ["EPERM", "EINVAL", "EISDIR", "ENOTSUP"]) {
    store.code = code;
    await store.write("state", new Uint8Array([1]));
  }
  store.code = "EIO";
  await assert.rejects(store.write("state", new Uint8Array([2])), /EIO/);
  end.abort();
});

test("a worker that has ended gives its folder free, and one that lives does not", async () => {
  const path = join(scratch, "worker");
  const place = JSON.stringify(new URL("../dist/directory.js", import.meta.url).href);
  const program = `
    const { parentPort } = require("node:worker_threads");
    import(${place}).then(async ({ DirectoryStore }) => {
      await new DirectoryStore(${JSON.stringify(path)}).own(new AbortController().signal);
      parentPort.postMessage("mine");
      setInterval(() => {}, 1_000);
    });`;
  const worker = new Worker(program, { eval: true });
  await new Promise((resolve) => worker.once("message", resolve));
  const app = await start({ store: new DirectoryStore(path) });
  assert.equal(app.status().standing, "in-use");
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.equal(app.status().standing, "in-use");
  await worker.terminate();
  await until(() => app.status().standing === "on");
  const other = await start({ store: new DirectoryStore(path) });
  assert.equal(other.status().standing, "in-use", "this thread runs");
  await other.close();
  await app.close();
});

test("who ends while a folder becomes free gives it back", async () => {
  const path = join(scratch, "aborted");
  class Slow extends DirectoryStore {
    async link(from, to) {
      await super.link(from, to);
      end.abort();
    }
  }
  const end = new AbortController();
  await assert.rejects(new Slow(path).own(end.signal));
  assert.equal(await readFile(join(path, "lock.1"), "utf8"), "");
});

/** The locks of a page, with nobody else. */
function locks(request) {
  return { navigator: { value: { locks: { request } } } };
}

test("a page that ends while a lock is given holds none, and a refused lock is none lost", async () => {
  let lost = 0;
  const end = new AbortController();
  const given = async (_name, _options, held) => {
    end.abort();
    await held();
  };
  await replaced(globalThis, locks(given), async () => {
    await assert.rejects(new PageStore("x").own(end.signal, () => (lost += 1)));
  });
  const refused = async () => {
    throw new DOMException("the origin is opaque", "SecurityError");
  };
  await replaced(globalThis, locks(refused), async () => {
    await assert.rejects(new PageStore("x").own(new AbortController().signal, () => (lost += 1)), /opaque/);
  });
  assert.equal(lost, 0);
  const stolen = async (_name, _options, held) => {
    held();
    throw new DOMException("stolen", "AbortError");
  };
  await replaced(globalThis, locks(stolen), async () => {
    await new PageStore("x").own(new AbortController().signal, () => (lost += 1));
    await until(() => lost === 1);
  });
});

test("a page whose storage is refused starts, and says so", async () => {
  const refuse = () => {
    throw new DOMException("denied to this page", "SecurityError");
  };
  const lock = async (_name, _options, held) => held();
  for (const indexedDB of [{ get: refuse }, { value: { open: refuse } }]) {
    await replaced(globalThis, { indexedDB, ...locks(lock) }, async () => {
      const app = await start({ store: undefined });
      const { standing, trouble } = app.status();
      assert.deepEqual([standing, trouble], ["storage-unusable", "denied to this page"]);
      await app.close();
    });
  }
});

test("a database that has failed is opened again", async () => {
  let [opened, isLost, isRefused] = [0, false, true];
  const kept = new Map();
  const later = (request, result) => {
    setTimeout(() => {
      request.result = result;
      request.onsuccess?.();
    });
    return request;
  };
  const connection = () => {
    opened += 1;
    const number = opened;
    const transaction = () => {
      if (isLost && number === 1) {
        throw new DOMException("the connection is lost", "InvalidStateError");
      }
      const one = { objectStore: () => slots, commit: () => setTimeout(() => one.oncomplete()) };
      const slots = { get: (slot) => later({}, kept.get(slot)), put: (bytes, slot) => kept.set(slot, bytes) };
      return one;
    };
    return { transaction, close: () => {} };
  };
  const open = () => {
    if (isRefused) {
      throw new DOMException("denied", "SecurityError");
    }
    return later({}, connection());
  };
  await replaced(globalThis, { indexedDB: { value: { open } } }, async () => {
    const store = new PageStore("x");
    await assert.rejects(store.read("state"), /denied/);
    isRefused = false;
    await store.write("state", new Uint8Array([1]));
    isLost = true;
    await assert.rejects(store.write("state", new Uint8Array([2])), /lost/);
    await store.write("state", new Uint8Array([3]));
    assert.deepEqual([...(await store.read("state"))], [3]);
    assert.equal(opened, 2);
  });
});
