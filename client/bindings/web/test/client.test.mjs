// What the package adds to the client: its transport, its store, its errors, and the provider.
//
// What the client itself does is tested by ../conformance, against a real server.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { createServer as createSocketServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import { OpenFeature, ProviderEvents } from "@openfeature/web-sdk";

import { posts as pagePosts } from "../dist/index.js";
import { Bandana, DirectoryStore, posts } from "../dist/node.js";
import { BandanaProvider } from "../dist/openfeature.js";
import { Tabs } from "../dist/tabs.js";

// What browsers of 2023 do not have.
delete AbortSignal.any;
delete AbortSignal.timeout;

const nobody = async () => null;

const scratch = await mkdtemp(join(tmpdir(), "bandana-"));
after(() => rm(scratch, { recursive: true }));

function start(settings) {
  return Bandana.start({ server: nobody, consent: true, store: null, ...settings });
}

async function until(isSo) {
  for (const end = Date.now() + 60_000; !(await isSo()); ) {
    assert.ok(Date.now() < end);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

test("a setting that can't be used is named", async () => {
  for (const [settings, what] of [
    [{ epsilonMax: -1 }, /^Error: epsilonMax: /],
    [{ epsilonMax: Number.NaN }, /^Error: epsilonMax: /],
    [{ epsilonMax: "1" }, /epsilonMax/],
    [{ budget: { window: 1, days: 0, lifetime: 1 } }, /budget/],
    [{ budget: { window: 1, days: 1.5, lifetime: 1 } }, /^Error: budget.days: /],
    [{ operatorKey: "abc" }, /^Error: operatorKey, countersignerKey: /],
    [{ appKey: "two words" }, /^Error: appKey: /],
    [{ rewards: { kind: "bounded", low: 1, high: 0 } }, /rewards/],
    [{ rewards: { kind: "many" } }, /rewards/],
    [{ segments: { Platform: "ios" } }, /segments/],
    [{ segments: { platform: 5 } }, /segments.platform: string/],
    [{ forced: { x: 5 } }, /forced.x: string/],
    [{ operatorkey: "ab" }, /operatorkey: .*did you mean operatorKey/],
    [{ colour: "blue" }, /colour: no setting .*known are server/],
    [{ budget: { window: 1, days: 1, lifetime: 1, week: 1 } }, /budget.week: no setting/],
    [{ budget: 5 }, /budget: object was expected, not number/],
    [{ consent: "yes" }, /consent: boolean was expected, not string/],
    [{ consent: undefined }, /consent: it must be given/],
    [{ appKey: 5 }, /appKey: string was expected, not number/],
    [{ operatorKey: null }, /operatorKey: string was expected, not null/],
    [{ keepPendingRewards: 1 }, /keepPendingRewards: boolean/],
    [{ reportOnceDays: "7" }, /reportOnceDays: number/],
    [{ leastReleaseDelaySeconds: 5n }, /leastReleaseDelaySeconds: number/],
    [{ logger: "debug" }, /logger: function or null/],
    [{ metrics: { "": { kind: "binary" } } }, /metrics/],
    [{ metrics: { minutes: { kind: "bounded", low: 1, high: 0 } } }, /metrics/],
    [{ metrics: { minutes: { kind: "many" } } }, /metrics: binary/],
    [{ metrics: { stars: { kind: "categorical", categories: 5 } } }, /metrics.*categories/],
    [{ server: "localhost:7301" }, /give/],
    [{ server: "http://bandana.example.org" }, /give/],
    [{ server: "https://a.example/path" }, /give/],
    [{ store: undefined }, /IndexedDB/],
  ]) {
    await assert.rejects(start(settings), what, String(Object.keys(settings)));
  }
});

test("a transport that fails is no network, and the default is shown", async () => {
  const calls = [];
  const app = await start({
    server: async (path, headers, body) => {
      calls.push({ path, headers, body });
      throw new Error("no route");
    },
  });
  const experiment = app.experiment("button-colour");
  await until(() => app.status().fetchesFailed >= 1);
  assert.equal(experiment.choose().labelOr("blue"), "blue");
  await assert.rejects(experiment.ready(0), /button-colour: .*no answer/);
  assert.equal(calls[0].path, "/bandana.v1.Device/GetExperiment");
  assert.deepEqual(calls[0].headers, { "content-type": "application/proto" });
  assert.throws(() => app.experiment("Button Colour"), /experiment/);
  await app.close();
  await app.close();
  assert.equal(app.status().standing, "closed");
  assert.equal(experiment.choose().label, null);
});

test("a forced arm is shown, and nothing leaves", async () => {
  const calls = [];
  const server = async (path) => {
    calls.push(path);
    throw new Error("no route");
  };
  const app = await start({ server, forced: { "button-colour": "green" } });
  const experiment = app.experiment("button-colour");
  await experiment.ready(0);
  const choice = experiment.choose();
  assert.deepEqual([choice.label, choice.reported, choice.reward(1)], ["green", false, false]);
  assert.match(choice.reason, /force this arm/);
  const told = [];
  const { onChange } = experiment;
  const end = onChange(() => told.push("ended"));
  onChange(() => {
    throw new Error("a bug of the app's");
  });
  onChange(() => told.push(experiment.choose().label));
  end();
  await app.close();
  assert.deepEqual([calls, told], [[], [null]]);
});

test("no redirect is followed, no endless answer read, and nothing names the installation", async () => {
  const seen = [];
  const server = createServer((request, response) => {
    seen.push({ url: request.url, headers: request.headers, port: request.socket.remotePort });
    if (request.url === "/redirect") {
      response.writeHead(302, { location: "/other" }).end();
    } else if (request.url === "/endless") {
      response.end(Buffer.alloc(2 << 20));
    } else {
      response.writeHead(429, { "retry-after": "7", "content-type": "application/json" }).end("{}");
    }
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const post = posts(`http://127.0.0.1:${server.address().port}`);
  const body = new Uint8Array([1]);
  const answer = await post("/a", { "content-type": "application/proto" }, body);
  assert.deepEqual([answer.status, answer.retryAfter, answer.contentType], [429, "7", "application/json"]);
  assert.equal((await post("/redirect", {}, body)).status, 302);
  await assert.rejects(post("/endless", {}, body), /too long/);
  assert.deepEqual(seen.map((one) => one.url), ["/a", "/redirect", "/endless"]);
  assert.equal(new Set(seen.map((one) => one.port)).size, 3, "each call has a connection");
  for (const name of ["cookie", "user-agent", "accept-language", "authorization"]) {
    assert.ok(seen.every(({ headers }) => !(name in headers)), name);
  }
  server.close();
  server.closeAllConnections();
});

test("a directory is for one client at a time, and what is damaged is not used", async () => {
  const path = join(scratch, "app");
  const store = () => new DirectoryStore(path);
  const first = await start({ store: store() });
  assert.equal(first.status().standing, "on");
  const second = await start({ store: store() });
  assert.equal(second.status().standing, "in-use");
  await first.optOut();
  await first.close();
  await until(() => second.status().standing === "opted-out");
  assert.equal(await second.optIn(), true);
  await second.close();
  assert.deepEqual((await readdir(path)).sort(), ["lock.2", "state"]);
  const kept = await readFile(join(path, "state"));
  kept[kept.length >> 1] ^= 1;
  await writeFile(join(path, "state"), kept);
  const third = await start({ store: store() });
  assert.equal(third.status().standing, "storage-unusable");
  assert.match(third.status().trouble, /damaged/);
  await third.close();
});

test("a process that has died gives its directory free", async () => {
  const path = join(scratch, "dead");
  await (await start({ store: new DirectoryStore(path) })).close();
  const first = await start({ store: new DirectoryStore(path) });
  const mine = JSON.parse(await readFile(join(path, "lock.2"), "utf8"));
  await first.close();
  for (const [number, owner, age, standing] of [
    // No process has this number; one that had this one was started at another time.
    [3, { ...mine, pid: 4194305 }, 0, "on"],
    [5, { ...mine, started: "1" }, 0, "on"],
    // Nothing is said; it is a process that can't be seen from here.
    [7, undefined, 0, "on"],
    // Systems that don't tell when a process was started.
    [9, { ...mine, started: null }, 10, "in-use"],
    [9, { ...mine, started: null }, 61, "on"],
    [11, { ...mine, place: "elsewhere" }, 10, "in-use"],
    [11, { ...mine, place: "elsewhere" }, 61, "on"],
  ]) {
    const lock = join(path, `lock.${number}`);
    await writeFile(lock, owner === undefined ? "" : JSON.stringify(owner));
    const then = new Date(Date.now() - age * 1000);
    await utimes(lock, then, then);
    const app = await start({ store: new DirectoryStore(path) });
    // A start waits for a store for a moment only.
    if (standing === "on") {
      await until(() => app.status().standing === "on");
    }
    assert.equal(app.status().standing, standing, JSON.stringify([number, owner]));
    await app.close();
  }
});

test("of processes that start after a crash, one has the directory", async () => {
  const program = join(scratch, "owner.mjs");
  const place = JSON.stringify(new URL("../dist/directory.js", import.meta.url).href);
  await writeFile(
    program,
    `const { DirectoryStore } = await import(${place});
    setTimeout(() => process.exit(), 30_000);
    await new DirectoryStore(process.argv[2]).own(new AbortController().signal);
    console.log("mine");`,
  );
  const path = join(scratch, "race");
  const owners = new Set();
  const starts = () => {
    const child = spawn(process.execPath, [program, path], { stdio: ["ignore", "pipe", "inherit"] });
    child.stdout.on("data", () => owners.add(child));
    return child;
  };
  const running = new Set([starts(), starts(), starts()]);
  for (let round = 0; round < 6; round += 1) {
    await until(() => owners.size > 0);
    // Whoever has it is killed, and two more come at the same time.
    assert.equal(owners.size, 1);
    const [owner] = owners;
    owners.delete(owner);
    running.delete(owner);
    owner.kill("SIGKILL");
    running.add(starts());
    running.add(starts());
  }
  await until(() => owners.size > 0);
  // The others have looked again and again meanwhile.
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.equal(owners.size, 1);
  for (const child of running) {
    child.kill("SIGKILL");
  }
});

/** A store in memory that several clients want. */
function shared() {
  const kept = new Map();
  let free = Promise.resolve();
  let isOwned = false;
  return () => {
    const store = { lost: undefined, writes: 0 };
    return Object.assign(store, {
      read: async (slot) => kept.get(slot),
      write: async (slot, bytes) => {
        store.writes += 1;
        kept.set(slot, bytes);
      },
      own: async (end, lost, busy) => {
        store.lost = lost;
        const before = free;
        free = before.then(() => new Promise((resolve) => end.addEventListener("abort", resolve)));
        if (isOwned) {
          busy();
        }
        isOwned = true;
        await before;
      },
    });
  };
}

test("a start waits for a store that is slow, so that the first arm is reported", async () => {
  const store = shared()();
  const { own } = store;
  store.own = async (...words) => {
    await new Promise((resolve) => setTimeout(resolve, 400));
    return own(...words);
  };
  const app = await start({ store });
  assert.deepEqual([app.status().standing, app.status().lifetimeSpent], ["on", 0]);
  await app.close();
  assert.deepEqual([app.status().standing, app.status().lifetimeSpent], ["closed", 0], "it is known");
});

test("a choice of the user outlasts the wait for a store", async () => {
  const store = shared();
  const first = await start({ store: store() });
  const second = await start({ store: store() });
  assert.deepEqual([first.status().standing, second.status().standing], ["on", "in-use"]);
  assert.equal(await second.optOut(), false, "it is not stored yet");
  await first.close();
  await until(() => second.status().standing === "opted-out");
  await second.close();
  const third = await start({ store: store() });
  assert.equal(third.status().standing, "opted-out");
  await third.close();
});

test("tabs of a page follow the user's choice", async () => {
  const store = shared();
  const channel = "bandana-test";
  const first = await start({ store: { ...store(), channel } });
  const second = await start({ store: { ...store(), channel } });
  assert.equal(await second.optOut(), false, "the other tab stores it");
  await until(() => first.status().standing === "opted-out");
  await first.optIn();
  await until(() => first.status().standing === "on");
  await first.close();
  await until(() => second.status().standing === "on");
  await second.close();
});

test("a tab shows the arm of the one that has the store, and hands it rewards", async () => {
  const taken = [];
  const choice = { label: "blue", arm: 0, assignment: 7n, reported: true, reason: null };
  const page = (has) => ({
    has: () => has,
    choose: (name) => (name === "colour" ? choice : { ...choice, label: null, assignment: null }),
    lasts: () => true,
    add: (...words) => taken.push(words),
    follow: () => {},
    watch: () => {},
    changed: () => {},
  });
  const [owner, tab] = [new Tabs("bandana-tabs", page(true)), new Tabs("bandana-tabs", page(false))];
  assert.equal(tab.add(7n, null, 1), false, "nobody has told of it");
  assert.equal(tab.told("colour"), null, "nobody was asked");
  assert.match(tab.choose("colour", true).reason, /not answered yet/);
  await until(() => tab.told("colour")?.label === "blue");
  assert.deepEqual(tab.choose("colour", true), choice);
  assert.ok(tab.add(7n, null, 1) && tab.add(7n, "minutes", 3));
  await until(() => taken.length === 2);
  assert.deepEqual(taken, [[7n, null, 1], [7n, "minutes", 3]]);
  owner.close();
  assert.equal(tab.choose("colour", true).label, "blue", "the same while the page is open");
  tab.choose("checkout", true);
  await until(() => tab.choose("checkout", true) === null);
  tab.close();
});

test("who has lost the store reports nothing", async () => {
  const store = shared()();
  const app = await start({ store });
  assert.equal(app.status().standing, "on");
  store.lost();
  assert.equal(app.status().standing, "in-use");
  const before = store.writes;
  app.experiment("button-colour");
  await app.optOut();
  assert.equal(store.writes, before);
  await app.close();
});

test("what is no name and no number gives defaults and throws nothing", async () => {
  const app = await start();
  for (const name of [undefined, null, 5, {}, [], Symbol("x"), "\ud800", "x".repeat(100_000)]) {
    assert.equal(app.choose(name).label, null);
    assert.equal(app.draw(name).label, null);
    assert.equal(typeof app.whyNotReady(name), "string");
    assert.deepEqual(app.labels(name), []);
    assert.equal(app.reward(name, 1), false);
    assert.equal(app.reward(1n, name), false);
    assert.equal(app.measure(1n, name, 1), false);
  }
  await app.close();
});

test("an answer of another protocol is no answer, and a client that ends waits for none", async () => {
  const server = createSocketServer((socket) => {
    socket.once("data", (head) => {
      if (String(head).startsWith("POST /other")) {
        socket.write("HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n");
      }
    });
    socket.on("error", () => {});
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const post = posts(`http://127.0.0.1:${server.address().port}`);
  await assert.rejects(post("/other", {}, new Uint8Array([1])), /protocol/);
  const end = new AbortController();
  const hangs = post("/hangs", {}, new Uint8Array([1]), end.signal);
  end.abort();
  await assert.rejects(hangs);
  server.close();
});

test("a store that can't be used at the start is asked again, and nothing is said to be spent", async () => {
  let isFull = true;
  const store = shared()();
  const { own } = store;
  store.own = async (...words) => {
    if (isFull) {
      throw new Error("no space left");
    }
    return own(...words);
  };
  const lines = [];
  const app = await start({ store, logger: (line) => lines.push(line) });
  const { standing, trouble, windowSpent, lifetimeSpent } = app.status();
  assert.deepEqual([standing, trouble], ["storage-unusable", "no space left"]);
  assert.deepEqual([windowSpent, lifetimeSpent], [null, null], "nobody knows");
  isFull = false;
  await until(() => app.status().standing === "on");
  assert.equal(app.status().lifetimeSpent, 0);
  assert.deepEqual(lines, [
    "bandana: standing: storage-unusable: no space left",
    "bandana: standing: on",
  ]);
  await app.close();
});

test("a directory without hard links is for one client at a time too", async () => {
  class Linkless extends DirectoryStore {
    async link() {
      throw Object.assign(new Error("operation not permitted"), { code: "EPERM" });
    }
  }
  const path = join(scratch, "linkless");
  const store = () => new Linkless(path);
  const apps = await Promise.all([start({ store: store() }), start({ store: store() })]);
  await until(() => apps.some((app) => app.status().standing === "on"));
  const [owner, other] = apps.sort((a, b) => (b.status().standing === "on") - (a.status().standing === "on"));
  assert.equal(other.status().standing, "in-use");
  await owner.close();
  await until(() => other.status().standing === "on");
  await other.close();
});

test("what is pending when a program ends is kept", async () => {
  const path = join(scratch, "ends");
  const program = join(scratch, "ends.mjs");
  const place = JSON.stringify(new URL("../dist/node.js", import.meta.url).href);
  await writeFile(
    program,
    `const { Bandana, DirectoryStore } = await import(${place});
    const app = await Bandana.start({
      server: async () => null, consent: true, store: new DirectoryStore(process.argv[2]) });
    await app.written();
    app.optOut();
    process.exit();`,
  );
  const child = spawn(process.execPath, [program, path], { stdio: "inherit" });
  assert.equal(await new Promise((resolve) => child.on("exit", resolve)), 0);
  const app = await start({ store: new DirectoryStore(path) });
  assert.equal(app.status().standing, "opted-out");
  await app.close();
});

test("any number of experiments is joined at once", async () => {
  let [now, most] = [0, 0];
  const asked = new Set();
  const app = await start({
    server: async (_path, _headers, body) => {
      now += 1;
      most = Math.max(most, now);
      asked.add(Buffer.from(body).toString("latin1"));
      await new Promise((resolve) => setTimeout(resolve, 1));
      now -= 1;
      return { status: 404, contentType: "application/json", retryAfter: null, body: Buffer.from('{"code":"not_found"}') };
    },
  });
  for (let i = 0; i < 600; i += 1) {
    app.experiment(`experiment-${i}`);
  }
  await until(() => asked.size === 600);
  assert.ok(most <= 8, `${most} calls at once`);
  await app.close();
});

test("a choice is written as JSON", async () => {
  const app = await start();
  const shown = JSON.parse(JSON.stringify(app.choose("button-colour")));
  assert.deepEqual(Object.keys(shown), ["label", "arm", "assignment", "reported", "reason"]);
  assert.equal(shown.assignment, null);
  assert.equal(app.reward("5", 1), false, "no such assignment");
  await app.close();
});

test("a page's failure names what a browser does not tell apart", async () => {
  const [fetchBefore, lines] = [globalThis.fetch, []];
  globalThis.location = { origin: "https://shop.example" };
  globalThis.fetch = async () => {
    throw new TypeError("Failed to fetch");
  };
  const app = await start({ server: pagePosts("https://b.example:443"), logger: (line) => lines.push(line) });
  app.experiment("button-colour");
  await until(() => app.status().lastError !== null);
  for (const shown of [app.status().lastError, lines.join("\n")]) {
    assert.match(shown, /CORS/);
    assert.match(shown, /cors_origins lacks https:\/\/shop.example/);
    assert.match(shown, /Content-Security-Policy/);
  }
  await app.close();
  globalThis.fetch = fetchBefore;
  delete globalThis.location;
});

test("a port that https has by itself is none", async () => {
  const [fetchBefore, asked] = [globalThis.fetch, []];
  globalThis.fetch = async (url) => {
    asked.push(url);
    return new Response("");
  };
  await pagePosts("https://b.example:443")("/a", {}, new Uint8Array([1]));
  assert.deepEqual(asked, ["https://b.example/a"]);
  globalThis.fetch = fetchBefore;
});

test("a store that fails holds reports back, and says so", async () => {
  let isFull = true;
  const kept = new Map();
  const store = {
    read: async (slot) => kept.get(slot),
    write: async (slot, bytes) => {
      if (isFull) {
        throw new Error("full");
      }
      kept.set(slot, bytes);
    },
    own: async () => {},
  };
  const app = await start({ store });
  assert.equal(await app.optOut(), false);
  assert.equal(app.status().standing, "opted-out");
  isFull = false;
  await until(async () => {
    await app.optOut();
    return kept.has("state");
  });
  await app.close();
});

test("a flag is an experiment, and an event its reward", async () => {
  const app = await start();
  const waiting = new BandanaProvider(app, { rewards: { buy: ["colour"] }, readySeconds: 0.05 });
  await assert.rejects(OpenFeature.setProviderAndWait(waiting), /colour: no server has told/);
  const client = OpenFeature.getClient();
  const details = client.getStringDetails("colour", "blue");
  assert.deepEqual([details.value, details.reason], ["blue", "DEFAULT"]);
  assert.match(details.flagMetadata.why, /no server has told/);
  assert.equal(client.getBooleanDetails("No Such", true).errorCode, "FLAG_NOT_FOUND");
  assert.equal(client.getObjectDetails("colour", {}).errorCode, "TYPE_MISMATCH");
  client.track("buy");
  await app.close();

  // Arms of a client that has some.
  const arms = { colour: "green", checkout: "on", items: "12" };
  const [rewards, measured] = [[], []];
  const drawn = [];
  const shown = {
    experiment: (name) => ({
      name,
      labels: [arms[name]],
      ready: async () => {},
      onChange: () => () => {},
      choose: () => {
        drawn.push(name);
        return {
          label: arms[name],
          reason: null,
          reward: (r) => rewards.push([name, r]),
          measure: (metric, value) => measured.push([name, metric, value]),
        };
      },
    }),
  };
  const provider = new BandanaProvider(shown, {
    rewards: { buy: ["colour", "items"] },
    metrics: { returned: ["colour", "items"] },
  });
  await OpenFeature.setProviderAndWait(provider);
  assert.equal(client.getStringDetails("colour", "blue").variant, "green");
  assert.equal(client.getBooleanValue("checkout", false), true);
  assert.equal(client.getNumberDetails("colour", 1).errorCode, "TYPE_MISMATCH");
  assert.deepEqual(drawn, ["colour", "checkout"], "nobody would see its arm");
  client.track("buy");
  client.track("buy", { value: 0.5 });
  assert.deepEqual(rewards, [["colour", 1], ["colour", 0.5]], "only what was shown");
  client.track("returned", { value: 0 });
  assert.deepEqual(measured, [["colour", "returned", 0]]);
  assert.equal(client.getNumberValue("items", 7), 12);
  await OpenFeature.clearProviders();
});

/** A client whose experiments begin to give arms, and cease to. */
class Arms {
  missing = new Set(["colour", "size"]);
  #listeners = new Map();

  experiment(name) {
    const whyNotReady = () => (this.missing.has(name) ? "no policy yet" : null);
    return {
      name,
      whyNotReady,
      labels: whyNotReady() === null ? ["green"] : [],
      choose: () => ({ label: whyNotReady() === null ? "green" : null, reason: whyNotReady() }),
      ready: async () => assert.equal(whyNotReady(), null),
      onChange: (listener) => {
        assert(!this.#listeners.has(name), "each is followed once");
        this.#listeners.set(name, listener);
        return () => this.#listeners.delete(name);
      },
    };
  }

  change(name, isMissing) {
    isMissing ? this.missing.add(name) : this.missing.delete(name);
    this.#listeners.get(name)?.();
  }

  get followed() {
    return [...this.#listeners.keys()].toSorted();
  }
}

test("events of a provider have lists of experiments", () => {
  for (const wrong of [{ rewards: { buy: "colour" } }, {}, { rewards: {}, metrics: { minutes: [] } }]) {
    assert.throws(() => new BandanaProvider(new Arms(), wrong), /give each event a list/);
  }
});

test("an application hears when flags get their arms, and lose them", async () => {
  const arms = new Arms();
  const provider = new BandanaProvider(arms, { rewards: { buy: ["colour", "size"] } });
  const heard = [];
  const client = OpenFeature.getClient();
  const hear = (kind, what) => client.addHandler(kind, (details) => heard.push(what(details)));
  hear(ProviderEvents.ConfigurationChanged, ({ flagsChanged }) => `changed ${flagsChanged}`);
  hear(ProviderEvents.Error, ({ message }) => message);
  hear(ProviderEvents.Ready, () => "ready");
  const told = async (...expected) => {
    await until(() => heard.length >= expected.length);
    assert.deepEqual(heard.splice(0), expected);
  };
  await assert.rejects(OpenFeature.setProviderAndWait(provider));
  await until(() => heard.length > 0);
  assert.equal(heard.splice(0).length, 1, "the SDK has told of the failure, alone");
  assert.equal(client.getStringDetails("font", "serif").value, "green");

  arms.change("colour", false);
  await told("changed colour");
  assert.equal(client.providerStatus, "ERROR", "the other one has no arm");
  arms.change("size", false);
  await told("changed size", "ready");
  assert.equal(client.providerStatus, "READY");
  arms.change("colour", true);
  await told("changed colour", "colour: no policy yet");
  assert.equal(client.providerStatus, "ERROR");
  // One that nobody named was evaluated, and is no reason of an error.
  arms.change("colour", false);
  arms.change("font", true);
  await told("changed colour", "ready", "changed font");
  assert.deepEqual(arms.followed, ["colour", "font", "size"]);
  await OpenFeature.clearProviders();
  assert.deepEqual(arms.followed, []);
});
