// One experiment with a trusted curator.

import { actionsOf } from "./actions.js";
import { changes } from "./details.js";
import { element, problem } from "./elements.js";
import { released } from "./released.js";
import { ServerError, get, pause } from "./server.js";
import { count } from "./text.js";
import { protection } from "./trusted-privacy.js";

/** Between two looks, in milliseconds. */
const INTERVAL = 2000;

/** Troubles that pass. */
const PASSING = [0, 429, 503];

const NOTES = {
  paused: "The server refuses rewards for now, and devices keep them. After a pause as long as the replay window, it refuses them as expired. It still recommends what to play.",
  stopped: "It has ended. What was released stays, and recommendations still follow it. All else was erased.",
};

const STOPPING = " ends for good: the server erases rewards of which nothing was released, refuses those that devices still hold, and you can’t start it again. To refuse rewards only for now, pause it.";

const DELETING = " is deleted for good, with all that was released of it. Its entries in the audit log stay. You can’t use its name again.";

/** Shows the experiment, and keeps it up to date. */
export async function trusted(context, id) {
  const { main, signal, announce, ready } = context;
  const parts = { released: released(context), protection: protection(), changes: changes() };
  // What was asked before a change tells of before.
  let changed = 0;
  const actions = actionsOf(id, context, { path: "/api/trusted", stopping: STOPPING, deleting: DELETING, changed: () => { changed += 1; } });
  const state = element("span", { class: "chip", id: "state" });
  const live = element("span", { class: "chip", id: "live" }, "connecting");
  const note = element("p", { class: "note" });
  const page = [
    element("div", { class: "row" }, element("h1", { tabindex: "-1" }, id), state,
      element("span", { class: "chip trusted" }, "trusted: rewards reach the server"), live),
    ...actions.parts, note, parts.released.section, parts.protection.section, parts.changes.section,
  ];
  let isShown = false;
  let releases = null;
  const show = ({ experiment, released: now }, entries) => {
    state.textContent = experiment.state;
    state.className = `chip ${experiment.state}`;
    note.textContent = NOTES[experiment.state] ?? "";
    actions.show(experiment);
    if (!isShown) {
      main.replaceChildren(...page);
      ready();
      isShown = true;
    }
    parts.released.show(experiment, now);
    parts.protection.show(experiment);
    parts.changes.show(entries);
    if (releases !== null && now.releases !== releases) {
      announce(`${count(now.releases)} releases, ${count(now.rewards)} rewards`);
    }
    releases = now.releases;
  };
  const told = (trouble) => {
    const isNews = (live.title || null) !== trouble;
    live.textContent = trouble === null ? "live" : "not live";
    live.className = `chip ${trouble === null ? "live" : "lost"}`;
    live.title = trouble ?? "";
    if (trouble === null || !isNews) return;
    announce(trouble);
    if (!isShown) main.replaceChildren(problem(`${trouble} Trying again.`));
  };
  while (!signal.aborted) {
    const before = changed;
    try {
      const moment = await get(`/api/trusted/${id}`, signal);
      const { entries } = await get(`/api/audit?experiment=${id}&limit=50`, signal);
      told(null);
      if (changed === before) show(moment, entries);
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof ServerError) || !PASSING.includes(error.status)) throw error;
      told(error.message);
    }
    // After a change at once.
    if (changed === before) await pause(INTERVAL, signal);
  }
}
