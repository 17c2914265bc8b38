// The program of JavaScript, in Node, for ../conformance/run.py.

import { createInterface } from "node:readline";

import { Bandana, DirectoryStore, Experiment } from "./dist/node.js";

let app;

async function start([url, directory, consent, lifetime, signer, segment, metric, range, log]) {
  const nats = Number(lifetime);
  const [low, high] = range.split(":").map(Number);
  const [key, ...witnesses] = log.split(" ");
  app = await Bandana.start({
    server: url,
    store: new DirectoryStore(directory),
    consent: consent === "1",
    budget: { window: nats, days: 7, lifetime: nats },
    ...(signer !== "-" && { operatorKey: signer }),
    ...(log !== "-" && { log: { key, witnesses } }),
    leastReleaseDelaySeconds: 0,
    segments: segment === "-" ? {} : Object.fromEntries([segment.split("=")]),
    metrics: metric === "-" ? {} : { [metric]: { kind: "binary" } },
    rewards: range === "-" ? { kind: "binary" } : { kind: "bounded", low, high },
  });
  return "ok";
}

function shown(choice) {
  if (choice.label === null) {
    return `default\t${choice.reason}`;
  }
  const stands = choice.reported ? "reported" : `unreported\t${choice.reason}`;
  return `arm\t${choice.label}\t${choice.assignment}\t${stands}`;
}

function told(text) {
  return text === null ? "none" : `told\t${text}`;
}

async function threads([count, name, times]) {
  // A page has one thread: these take turns.
  const seen = new Set();
  const draw = async () => {
    for (let i = 0; i < Number(times); i++) {
      const choice = app.experiment(name).draw();
      choice.reward(1);
      seen.add(choice.assignment);
      await null;
    }
  };
  await Promise.all(Array.from({ length: Number(count) }, draw));
  return String(seen.size);
}

function time([name, times]) {
  const experiment = app.experiment(name);
  const begin = performance.now();
  for (let i = 0; i < Number(times); i++) {
    experiment.choose();
  }
  return String(((performance.now() - begin) / Number(times)) * 1000);
}

async function carryOut(command, words) {
  switch (command) {
    case "start":
      return start(words);
    case "join":
      app.experiment(words[0]);
      return "ok";
    case "ready":
      try {
        await new Experiment(app, words[0]).ready(Number(words[1]));
        return "ready";
      } catch (error) {
        return `not-ready\t${error.message}`;
      }
    case "choose":
    case "draw":
      return shown(app[command](words[0]));
    case "reward":
      return app.reward(BigInt(words[0]), Number(words[1])) ? "yes" : "no";
    case "measure":
      return app.measure(BigInt(words[0]), words[1], Number(words[2])) ? "yes" : "no";
    case "threads":
      return threads(words);
    case "time":
      return time(words);
    case "status": {
      const s = app.status();
      const figures = [s.lifetimeSpent ?? "unknown", s.waitingReports, s.openAssignments];
      const counts = [s.uploadsAccepted, s.fetchesFailed, s.uploadsRefused];
      return [s.standing, ...figures, ...counts].join("\t");
    }
    case "refusal":
      return told(app.status().lastRefusal);
    case "error":
      return told(app.status().lastError);
    case "opt-out":
      return (await app.optOut()) ? "ok" : "failed";
    case "opt-in":
      return (await app.optIn()) ? "ok" : "failed";
    case "wake":
      app.wake();
      return "ok";
    default:
      await app.close();
      return "ok";
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const [command, ...words] = line.split("\t");
  let answer;
  try {
    answer = await carryOut(command, words);
  } catch (error) {
    answer = `error\t${error.message}`;
  }
  console.log(answer);
}
await app?.close();
