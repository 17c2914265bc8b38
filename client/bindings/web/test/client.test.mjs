// What the package adds to the client: its transport, its store, its errors, and the provider.
//
// What the client itself does is tested by ../conformance, against a real server.

import assert from "node:assert/strict";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import { OpenFeature } from "@openfeature/web-sdk";

import { Bandana, DirectoryStore, posts } from "../dist/index.js";
import { BandanaProvider } from "../dist/openfeature.js";

const nobody = async () => null;

const scratch = await mkdtemp(join(tmpdir(), "bandana-"));
after(() => rm(scratch, { recursive: true }));

function start(settings) {
  return Bandana.start({ server: nobody, consent: true, store: null, ...settings });
}

async function until(isSo) {
  for (const end = Date.now() + 10_000; !(await isSo()); ) {
    assert.ok(Date.now() < end);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

test("a setting that can't be used is named", async () => {
  for (const [settings, what] of [
    [{ epsilonMax: -1 }, /epsilon_max/],
    [{ epsilonMax: Number.NaN }, /epsilon_max/],
    [{ epsilonMax: "1" }, /epsilonMax/],
    [{ budget: { window: 1, days: 0, lifetime: 1 } }, /budget/],
    [{ budget: { window: 1, days: 1.5, lifetime: 1 } }, /windowDays/],
    [{ operatorKey: "abc" }, /signers/],
    [{ appKey: "two words" }, /app_key/],
    [{ rewards: { kind: "bounded", low: 1, high: 0 } }, /rewards/],
    [{ rewards: { kind: "many" } }, /rewards/],
    [{ server: "localhost:7301" }, /give/],
    [{ server: "http://bandana.example.org" }, /give/],
    [{ server: "https://a.example/path" }, /give/],
    [{ store: undefined }, /IndexedDB/],
  ]) {
    await assert.rejects(start(settings), what, JSON.stringify(settings));
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
  await until(() => app.status().fetchesFailed === 1);
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
  assert.deepEqual((await readdir(path)).sort(), ["state"]);
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
  // No process has this number.
  await writeFile(join(path, "lock"), "4194305");
  const app = await start({ store: new DirectoryStore(path) });
  assert.equal(app.status().standing, "on");
  await app.close();
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
  await OpenFeature.setProviderAndWait(new BandanaProvider(app, { rewards: { buy: ["colour"] } }));
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
  const rewards = [];
  const drawn = [];
  const shown = {
    experiment: (name) => ({
      labels: [arms[name]],
      choose: () => {
        drawn.push(name);
        return { label: arms[name], reason: null, reward: (r) => rewards.push([name, r]) };
      },
    }),
  };
  const provider = new BandanaProvider(shown, { rewards: { buy: ["colour", "items"] } });
  await OpenFeature.setProviderAndWait(provider);
  assert.equal(client.getStringDetails("colour", "blue").variant, "green");
  assert.equal(client.getBooleanValue("checkout", false), true);
  assert.equal(client.getNumberDetails("colour", 1).errorCode, "TYPE_MISMATCH");
  assert.deepEqual(drawn, ["colour", "checkout"], "nobody would see its arm");
  client.track("buy");
  client.track("buy", { value: 0.5 });
  assert.deepEqual(rewards, [["colour", 1], ["colour", 0.5]], "only what was shown");
  assert.equal(client.getNumberValue("items", 7), 12);
  await OpenFeature.clearProviders();
});
