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
  paused: "Rewards are refused for now, and devices keep them; after a pause as long as the replay window they are refused as expired. What to play is still recommended.",
  stopped: "It has ended. What was released stays, and goes on to be recommended by; all else was erased.",
};

const STOPPING = " ends: rewards of which nothing was released are erased, those that devices still hold are refused, and nothing starts it again. To refuse them for now, pause it.";

const DELETING = " goes for good, with all that was released of it. Its entries among the changes stay, and no experiment can have its name again.";

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
