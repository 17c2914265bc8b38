// One experiment.

import { arms } from "./arms.js";
import { actionsOf } from "./actions.js";
import { cells, harms } from "./cells.js";
import { about, changes } from "./details.js";
import { element } from "./elements.js";
import { exportLinks } from "./exports.js";
import { earned } from "./holdout.js";
import { history } from "./over-time.js";
import { privacy } from "./privacy.js";
import { record } from "./record.js";
import { follow, get, lines, pause } from "./server.js";
import { count, visible } from "./text.js";
import { DAYS, daily } from "./traffic.js";

/** Least time between two looks at tallies and changes, in milliseconds. */
const BETWEEN_LOOKS = 5000;

/** How many times as long as a look the time until the next one is, at least: long histories are
    read less often. */
const REST = 5;

/** From new numbers until they are read out, in milliseconds: those that come meanwhile
    take their place. */
const BEFORE_WORDS = 5000;

/** Shows the experiment, and keeps it up to date. */
export async function experiment(context, id) {
  const { main, signal, announce, ready } = context;
  const parts = { arms: arms(context), cells: cells(), history: history(context), traffic: daily(context), privacy: privacy(context), changes: changes(), about: about(), record: record(id, context) };
  const actions = actionsOf(id, context);
  const state = element("span", { class: "chip", id: "state" });
  const live = element("span", { class: "chip", id: "live" }, "connecting");
  const note = element("p", { class: "note" });
  const alarms = alarmList();
  const harm = element("div", { id: "harm" });
  const page = [
    element("div", { class: "row" }, element("h1", { tabindex: "-1" }, id), state, live),
    ...actions.parts, note, alarms.section, harm, parts.record.section, parts.arms.section, parts.cells.section,
    parts.history.section, parts.traffic.section, parts.privacy.section, parts.about.section, exportLinks(id, context, () => parts.arms.query()),
    parts.changes.section,
  ];
  let isShown = false;
  const say = speaker(announce, signal);
  let before = null;
  let following = new AbortController();
  const latest = { moment: null };
  const look = lookAgain(id, parts, latest, signal);
  const seen = (moment) => {
    latest.moment = moment;
    const { experiment: now, estimates } = moment;
    state.textContent = now.state;
    state.className = `chip ${now.state}`;
    note.textContent = NOTES[now.state] ?? "";
    actions.show(now);
    alarms.show(estimates.alarms ?? []);
    if (!isShown) {
      main.replaceChildren(...page);
      ready();
      isShown = true;
    }
    parts.arms.show(moment);
    parts.cells.show(moment);
    harm.replaceChildren(...harms(estimates), ...earned(estimates));
    parts.privacy.show(moment, parts.arms.share());
    parts.about.show(moment.details);
    parts.record.show(now);
    look();
    const words = inWords(estimates);
    if (before !== null && words !== before) say(words);
    before = words;
  };
  const told = (trouble) => {
    live.textContent = trouble === null ? "live" : "not live";
    live.className = `chip ${trouble === null ? "live" : "lost"}`;
    live.title = trouble ?? "Shown as it is known";
    if (trouble !== null) {
      announce(trouble);
      if (!isShown) main.replaceChildren(element("p", { role: "alert" }, `${trouble} Trying again.`));
    }
  };
  // Other questions are other answers: each begins a new one.
  parts.arms.changed(() => following.abort());
  while (!signal.aborted) {
    following = new AbortController();
    const both = AbortSignal.any([signal, following.signal]);
    await follow(`/api/experiments/${id}/watch?${parts.arms.query()}`, both, seen, told);
  }
}

const NOTES = {
  draft: "Devices see nothing of a draft until you start it.",
  paused: "The server refuses reports for now, and devices keep them. After a pause as long as the replay window, it refuses them as expired. Devices still get arms.",
  stopped: "It has ended. What was reported stays.",
};

/** Reads out the last of the words that come close together. */
function speaker(announce, signal) {
  let last = null;
  return (words) => {
    const isWaiting = last !== null;
    last = words;
    if (isWaiting) return;
    pause(BEFORE_WORDS, signal).then(() => {
      if (!signal.aborted) announce(last);
      last = null;
    });
  };
}

function inWords({ estimand, reports, best_arm: best, arms: all }) {
  if (estimand === "frequencies") return `${count(reports)} reports`;
  const arm = all.find((arm) => arm.arm === best);
  return `${count(reports)} reports; ${arm ? `${visible(arm.label)} is best` : "no arm is best yet"}`;
}

/** Reads tallies and changes after news, one look at a time. A failed one is made up for
    by the next. */
function lookAgain(id, parts, latest, signal) {
  let isLooking = false;
  let isWanted = false;
  return async () => {
    isWanted = true;
    if (isLooking) return;
    isLooking = true;
    while (isWanted && !signal.aborted) {
      isWanted = false;
      const begun = performance.now();
      try {
        const first = Math.floor(Date.now() / 86_400_000) - DAYS;
        const rows = [];
        for await (const row of lines(`/api/experiments/${id}/tallies?first_day=${first}`, signal)) rows.push(row);
        const known = await get(`/api/experiments/${id}/over-time?${parts.arms.query()}`, signal);
        const { entries } = await get(`/api/audit?experiment=${id}&limit=50`, signal);
        if (signal.aborted) return;
        parts.traffic.show(rows, latest.moment);
        parts.history.show(known, latest.moment);
        parts.changes.show(entries);
      } catch (error) {
        // Whatever it is, the watch has it too, and says so.
      }
      await pause(Math.max(BETWEEN_LOOKS, REST * (performance.now() - begun)), signal);
    }
    isLooking = false;
  };
}

function alarmList() {
  const list = element("ul");
  const section = element("section", { class: "alarms", id: "alarms", "aria-labelledby": "alarms-title", hidden: true },
    element("h2", { id: "alarms-title" }, "Alarms"), list);
  let before = "[]";
  const show = (alarms) => {
    section.hidden = alarms.length === 0;
    if (JSON.stringify(alarms) === before) return;
    before = JSON.stringify(alarms);
    list.replaceChildren(...alarms.map(({ name, message }) =>
      element("li", {}, element("strong", {}, name), `: ${visible(message)}`)));
  };
  return { section, show };
}
