// What pages of an origin tell each other, and how React hears of it.

import assert from "node:assert/strict";
import { register } from "node:module";
import { test } from "node:test";

import { Bandana } from "../dist/node.js";
import { Tabs } from "../dist/tabs.js";

const blue = { label: "blue", arm: 0, assignment: 7n, reported: true, reason: null };
const none = { label: null, arm: null, assignment: null, reported: false, reason: "no policy" };

async function until(isSo) {
  for (const end = Date.now() + 60_000; !(await isSo()); ) {
    assert.ok(Date.now() < end);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

/** A page that shows blue in `colour`, and writes down what it takes. */
function page(has) {
  const one = {
    isOwner: has,
    shown: blue,
    open: [7n],
    taken: [],
    changes: 0,
    listeners: [],
    has: () => one.isOwner,
    chosen: 0,
    choose: (name) => {
      one.chosen += 1;
      return name === "colour" ? one.shown : none;
    },
    whyNot: (name) => (name === "colour" ? one.shown : none).reason,
    lasts: (assignment) => one.open.includes(assignment),
    add: (...words) => one.taken.push(words),
    follow: () => {},
    watch: (_name, listener) => one.listeners.push(listener),
    changed: () => (one.changes += 1),
  };
  return one;
}

async function told(channel, owner, other) {
  const tabs = [new Tabs(channel, owner), new Tabs(channel, other)];
  tabs[1].choose("colour", true);
  await until(() => tabs[1].told("colour")?.label === "blue");
  return tabs;
}

test("a reward that nobody takes is kept for the next page with the store, which adds it once", async () => {
  const [owner, other, next] = [page(true), page(false), page(false)];
  const [first, tab] = await told("bandana-next", owner, other);
  const third = new Tabs("bandana-next", next);
  assert.ok(tab.add(7n, null, 1));
  await until(() => owner.taken.length === 1);
  // It is suspended: it has the store, and hears nothing.
  first.close();
  assert.ok(tab.add(7n, null, 2) && tab.add(7n, "minutes", 3));
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  assert.ok(tab.add(7n, null, 4));
  next.isOwner = true;
  third.owns();
  await until(() => next.taken.length >= 3);
  await new Promise((resolve) => setTimeout(resolve, 2_500));
  assert.deepEqual(next.taken, [[7n, null, 2], [7n, "minutes", 3], [7n, null, 4]]);
  assert.deepEqual([owner.taken, other.taken], [[[7n, null, 1]], []]);
  tab.close();
  third.close();
});

test("a page that takes the store over adds what it had to hand over, once and in its order", async () => {
  const [owner, other] = [page(true), page(false)];
  const [first, tab] = await told("bandana-over", owner, other);
  first.close();
  assert.ok(tab.add(7n, null, 1));
  other.isOwner = true;
  assert.ok(tab.add(7n, null, 2), "after what waits");
  await until(() => other.taken.length === 2);
  assert.equal(tab.add(7n, null, 3), false, "it is for this page alone");
  tab.close();
  assert.deepEqual(other.taken, [[7n, null, 1], [7n, null, 2]]);
});

test("a page that is closed hands over what waits, and says nothing afterwards", async () => {
  const [owner, other] = [page(true), page(false)];
  const [first, tab] = await told("bandana-closes", owner, other);
  assert.ok(tab.add(7n, null, 1));
  tab.close();
  await until(() => owner.taken.length === 1);
  tab.wish("out");
  tab.here();
  first.close();
});

test("what pages tell each other does not depend on rewards but in its content", async () => {
  const owner = page(true);
  const heard = [];
  const channel = new BroadcastChannel("bandana-times");
  channel.onmessage = ({ data }) => "by" in data && heard.push(data.given.length);
  const [first, tab] = await told("bandana-times", owner, page(false));
  await until(() => heard.length === 1);
  for (let i = 0; i < 5; i += 1) {
    tab.add(7n, null, 1);
  }
  await until(() => heard.length === 2);
  assert.deepEqual(heard, [0, 5]);
  channel.close();
  first.close();
  tab.close();
});

test("what is handed over twice is added once", async () => {
  const owner = page(true);
  const tab = new Tabs("bandana-twice", owner);
  const channel = new BroadcastChannel("bandana-twice");
  const heard = [];
  channel.onmessage = ({ data }) => heard.push(data);
  const given = [5, 6].map((number) => ({ number, assignment: 7n, metric: null, value: 1 }));
  for (let i = 0; i < 2; i += 1) {
    channel.postMessage({ by: 1, given, shown: [7n, 8n] });
  }
  await until(() => heard.length === 2);
  assert.equal(owner.taken.length, 2);
  assert.deepEqual(heard[1], { to: 1, taken: 6, over: [8n] });
  channel.close();
  tab.close();
});

test("an arm whose window has ended is asked for again, and takes no reward", async () => {
  const [owner, other] = [page(true), page(false)];
  const [first, tab] = await told("bandana-window", owner, other);
  assert.equal(tab.whyNot("colour"), null);
  owner.open = [8n];
  owner.shown = { ...blue, label: "green", assignment: 8n };
  await until(() => !tab.add(7n, null, 1));
  assert.equal(tab.whyNot("colour"), null, "there is another one");
  assert.equal(tab.choose("colour", true).label, null);
  await until(() => tab.told("colour")?.label === "green");
  assert.ok(tab.add(8n, null, 1));
  first.close();
  tab.close();
});

test("an arm that never reports takes no reward", async () => {
  const owner = page(true);
  owner.shown = { ...blue, reported: false };
  const [first, tab] = await told("bandana-unreported", owner, page(false));
  assert.equal(tab.add(7n, null, 1), false);
  first.close();
  tab.close();
});

test("a page hears that another one has arms now, and that one is silent", async () => {
  const [owner, other] = [page(true), page(false)];
  owner.shown = none;
  const [first, tab] = [new Tabs("bandana-hears", owner), new Tabs("bandana-hears", other)];
  tab.choose("colour", true);
  await until(() => tab.whyNot("colour") === "no policy");
  assert.ok(other.changes > 0);
  owner.shown = blue;
  const before = other.changes;
  owner.listeners[0]();
  await until(() => other.changes > before);
  assert.equal(tab.whyNot("colour"), null, "it is to be asked");
  tab.choose("colour", true);
  await until(() => tab.told("colour")?.label === "blue");
  first.close();
  const heard = [];
  other.changed = () => heard.push(tab.whyNot("checkout"));
  tab.choose("checkout", true);
  await until(() => heard.includes(undefined));
  assert.match(heard[0], /not answered yet/);
  tab.close();
});

test("an arm is asked for only by who shows it: what nobody shows would be one without a reaction", async () => {
  const [owner, other] = [page(true), page(false)];
  const [first, tab] = [new Tabs("bandana-shows", owner), new Tabs("bandana-shows", other)];
  for (let i = 0; i < 3; i += 1) {
    const choice = tab.choose("colour", false);
    assert.deepEqual([choice.label, choice.reported], [null, false]);
    assert.match(choice.reason, /ready\(\)/);
    await until(() => tab.whyNot("colour") === null);
    await new Promise((resolve) => setTimeout(resolve, 60));
  }
  assert.equal(owner.chosen, 0, "nothing was assigned");
  tab.choose("colour", true);
  await until(() => tab.told("colour")?.label === "blue");
  assert.equal(tab.choose("colour", false).assignment, 7n);
  owner.open = [];
  await until(() => !tab.add(7n, null, 1));
  const after = tab.choose("colour", false);
  assert.deepEqual([after.label, after.assignment, after.reported], ["blue", null, false]);
  await new Promise((resolve) => setTimeout(resolve, 60));
  assert.equal(owner.chosen, 1);
  first.close();
  tab.close();
});

/** Stores of one memory, of which one client at a time has its own. */
function memory(channel) {
  const kept = new Map();
  let free = Promise.resolve();
  let isOwned = false;
  const store = {
    channel,
    reading: Promise.resolve(),
    read: async (slot) => {
      await store.reading;
      return kept.get(slot);
    },
    write: async (slot, bytes) => void kept.set(slot, bytes),
    own: async (end, _lost, busy) => {
      const before = free;
      free = before.then(() => new Promise((resolve) => end.addEventListener("abort", resolve)));
      if (isOwned) {
        busy();
      }
      isOwned = true;
      await before;
    },
  };
  return store;
}

function start(store) {
  return Bandana.start({ server: async () => null, consent: true, store });
}

/** Answers as a page that has the store and shows blue in each experiment. */
function shows(name, { over = [] } = {}) {
  const channel = new BroadcastChannel(name);
  const given = [];
  channel.onmessage = ({ data }) => {
    if (data.ask) {
      channel.postMessage({ told: data.ask, choice: blue });
    } else if (data.by) {
      given.push(...data.given);
      channel.postMessage({ to: data.by, taken: given.at(-1)?.number ?? 0, over });
    }
  };
  return { given, close: () => channel.close() };
}

test("a tab keeps its arm and takes rewards while it takes the store over", async () => {
  const store = memory("bandana-takes");
  // It says nothing; another answers in its place.
  const first = await start({ ...store, channel: undefined });
  const tab = await start(store);
  assert.equal(tab.status().standing, "in-use");
  const other = shows("bandana-takes");
  await tab.experiment("colour").ready(30);
  other.close();
  let read;
  store.reading = new Promise((resolve) => (read = resolve));
  await first.close();
  await until(() => tab.status().standing === "storage-unusable");
  const choice = tab.choose("colour");
  assert.deepEqual([choice.label, choice.reward(1)], ["blue", true]);
  read();
  await tab.close();
});

test("a page without a channel stands alone", async () => {
  const channelBefore = globalThis.BroadcastChannel;
  globalThis.BroadcastChannel = class {
    constructor() {
      throw new DOMException("the origin is opaque", "SecurityError");
    }
  };
  const app = await start(memory("bandana-opaque"));
  globalThis.BroadcastChannel = channelBefore;
  assert.equal(app.status().standing, "on");
  await app.close();
  assert.equal(await app.optOut(), false);
});

test("who opts out after the end is answered", async () => {
  const app = await start(memory("bandana-end"));
  await app.close();
  assert.deepEqual([await app.optOut(), await app.optIn()], [false, false]);
});

// React, as far as the hook needs it: what a component keeps, and the listener of its subscription.
const hooks = `
  export const createContext = (value) => ({ value, Provider: "provider" });
  export const useContext = () => globalThis.reactClient;
  export const useMemo = (make) => make();
  export const useCallback = (callback) => callback;
  export const useState = () => [];
  export const useEffect = () => {};
  export const createElement = () => ({});
  export function useSyncExternalStore(subscribe, snapshot) {
    globalThis.reactEnd ??= subscribe(() => (globalThis.reactRenders += 1));
    return snapshot();
  }`;
const loader = `export const resolve = (name, context, next) =>
  name === "react"
    ? { url: ${JSON.stringify(`data:text/javascript,${encodeURIComponent(hooks)}`)}, shortCircuit: true }
    : next(name, context);`;
register(`data:text/javascript,${encodeURIComponent(loader)}`);

test("a component in a further tab is rendered again once the other tab has told its arm", async () => {
  const { useChoice } = await import("../dist/react.js");
  const store = memory("bandana-react");
  // It says nothing; another answers in its place.
  const first = await start({ ...store, channel: undefined });
  const tab = await start(store);
  assert.equal(tab.status().standing, "in-use");
  const other = shows("bandana-react");
  globalThis.reactClient = tab;
  globalThis.reactRenders = 0;
  assert.equal(useChoice("colour"), null, "no policy, and nobody was asked");
  await until(() => globalThis.reactRenders > 0 && useChoice("colour")?.label === "blue");
  assert.equal(useChoice("No Such"), null);
  globalThis.reactEnd();
  other.close();
  await tab.close();
  assert.equal(useChoice("colour"), null, "the client is closed");
  await first.close();
});
