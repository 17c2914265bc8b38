// All experiments, of both kinds.

import { element, numberCell, problem, table } from "./elements.js";
import { check, choice } from "./forms.js";
import { ServerError, everything, pause } from "./server.js";
import { count, plain, visible } from "./text.js";

/** Between two looks, in milliseconds. */
const INTERVAL = 3000;

const state = (experiment) => element("span", { class: `chip ${experiment.state}` },
  experiment.archived ? "archived" : experiment.state);

/** How many alarms ring, with their names. */
function alarms(found) {
  if (found.length === 0) return "";
  const names = found.map((alarm) => alarm.name).join(", ");
  return element("span", { class: "chip lost", title: names },
    found.length === 1 ? "1 alarm" : `${found.length} alarms`);
}

const PRIVATE = {
  id: "experiments",
  title: "Private bits",
  caption: "Experiments, by name",
  page: "#/experiments/",
  none: ["There are no experiments yet. ", element("a", { href: "#/new" }, "Create the first one.")],
  columns: [
    { title: "Experiment" },
    { title: "State" },
    { title: "Reports", isNumber: true },
    { title: "Arms in play", isNumber: true },
    { title: "Epsilon", isNumber: true, hint: "nats for each report" },
    { title: "Learner" },
  ],
  cells: (experiment) => {
    return [
      element("td", {}, state(experiment), experiment.simulation ? " simulated " : " ",
        alarms(experiment.alarms)),
      numberCell(experiment.reports, count(experiment.reports)),
      numberCell(experiment.arms_in_play, count(experiment.arms_in_play)),
      numberCell(experiment.epsilon, plain(experiment.epsilon)),
      element("td", {}, experiment.learner),
    ];
  },
};

const TRUSTED = {
  id: "trusted",
  title: "Trusted curator",
  mark: "trusted: rewards reach the server",
  caption: "Trusted experiments, by name",
  page: "#/trusted/",
  none: ["There are no trusted experiments. In one, users disclose their rewards to this server. "],
  more: element("a", { href: "#/new-trusted" }, "New trusted experiment"),
  columns: [
    { title: "Experiment" },
    { title: "State" },
    { title: "Rewards", isNumber: true, hint: "that count, released or not" },
    { title: "Releases", isNumber: true },
    { title: "Rho", isNumber: true, hint: "what one reward costs at most" },
    { title: "Algorithm" },
  ],
  cells: (experiment) => [
    element("td", {}, state(experiment)),
    numberCell(experiment.rewards, count(experiment.rewards)),
    numberCell(experiment.releases, count(experiment.releases)),
    numberCell(experiment.rho, plain(experiment.rho)),
    element("td", {}, experiment.algorithm),
  ],
};

/** Shows the lists, and keeps them up to date. */
export async function experiments({ main, signal, announce, ready }) {
  const trouble = element("div");
  const lists = [list(PRIVATE), list(TRUSTED)];
  const archived = check("archived", "Show archived experiments too");
  const filter = filters();
  let found = null;
  const showAll = () => found?.forEach((all, place) => lists[place].show(all.filter(filter.matches), all.length));
  filter.changed(() => {
    showAll();
    announce(`${count(found?.flat().filter(filter.matches).length ?? 0)} experiments match`);
  });
  let waiting = new AbortController();
  archived.input.addEventListener("change", () => waiting.abort());
  filter.changed(() => { if (filter.wantsArchived()) waiting.abort(); });
  let before = "";
  let isFirst = true;
  while (!signal.aborted) {
    waiting = new AbortController();
    try {
      const wanted = archived.input.checked || filter.wantsArchived();
      const news = await Promise.all(["/api/experiments", "/api/trusted"].map((path) => everything(path, wanted, signal)));
      if (isFirst) {
        main.replaceChildren(
          element("div", { class: "row" }, element("h1", { tabindex: "-1" }, "Experiments"),
            element("a", { href: "#/new", class: "button main" }, "New experiment")),
          filter.row, trouble, ...lists.map(({ section }) => section), archived.row);
        ready();
        isFirst = false;
      }
      trouble.replaceChildren();
      // What an alarm has seen changes all the time; which ones ring does not.
      const now = JSON.stringify(news, (key, value) => (key === "alarms" ? value.map((alarm) => alarm.name) : value));
      if (now !== before) {
        found = news;
        showAll();
        const all = found.reduce((sum, experiments) => sum + experiments.length, 0);
        if (before) announce(`${count(all)} experiments, updated`);
        before = now;
      }
    } catch (error) {
      if (signal.aborted) return;
      const isPassing = error instanceof ServerError && [0, 429, 503].includes(error.status);
      if (isFirst || !isPassing) {
        if (!isPassing) throw error;
        main.replaceChildren(problem(`${error.message} Trying again.`));
      } else {
        trouble.replaceChildren(problem(`${error.message} The list below is older.`));
      }
    }
    await pause(INTERVAL, AbortSignal.any([signal, waiting.signal]));
  }
}

/** What is written about an experiment, in short. */
function written({ title, owner, tags = [], decision }) {
  const text = (words, name) => element(name, { class: name === "strong" ? undefined : "tag" }, visible(words));
  return [
    title ? element("bdi", {}, visible(title)) : null,
    owner ? element("bdi", {}, visible(owner)) : null,
    ...tags.map((tag) => text(tag, "bdi")),
    decision ? text(`Decided: ${decision}`, "strong") : null,
  ].filter((part) => part !== null);
}

/** What is searched for, and which states. */
function filters() {
  const search = element("input", { type: "search", id: "search", autocomplete: "off", spellcheck: "false" });
  const state = choice("state-filter", [["", "any state"], ["draft", "draft"], ["running", "running"],
    ["paused", "paused"], ["stopped", "ended"], ["archived", "archived"]]);
  state.className = "short";
  const row = element("div", { class: "row", role: "search" },
    element("label", { for: "search" }, "Name, title, owner or tag"), search,
    element("label", { for: "state-filter" }, "State"), state);
  const matches = (experiment) => {
    const { experiment_id: id, title = "", owner = "", tags = [] } = experiment;
    const text = [id, title, owner, ...tags].join("\n").toLowerCase();
    const words = search.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    const stands = state.value === "archived" ? experiment.archived : state.value === "" || experiment.state === state.value;
    return stands && words.every((word) => text.includes(word));
  };
  const changed = (then) => [[search, "input"], [state, "change"]].forEach(([input, event]) => input.addEventListener(event, then));
  return { row, matches, changed, wantsArchived: () => state.value === "archived" };
}

/** The section of a kind, and what brings it up to date. */
function list(kind) {
  const { frame, body } = table(kind.id, kind.caption, kind.columns);
  const none = element("p", {}, ...kind.none);
  const unmatched = element("p", { class: "note", hidden: true }, "No experiment matches.");
  const title = `${kind.id}-title`;
  const section = element("section", { "aria-labelledby": title },
    element("div", { class: "row" }, element("h2", { id: title }, kind.title),
      kind.mark ? element("span", { class: "chip trusted" }, kind.mark) : null, kind.more),
    none, unmatched, frame);
  const show = (experiments, number) => {
    update(body, kind, experiments);
    none.hidden = number > 0;
    unmatched.hidden = number === 0 || experiments.length > 0;
    frame.hidden = experiments.length === 0;
  };
  return { section, show };
}

/** Rows are kept, so that a link that has the focus keeps it. */
function update(body, kind, experiments) {
  const known = new Map([...body.rows].map((row) => [row.dataset.experiment, row]));
  const rows = experiments.map((experiment) => {
    const id = experiment.experiment_id;
    const row = known.get(id) ?? element("tr", { "data-experiment": id },
      element("th", { scope: "row", class: "wraps" },
        element("a", { href: `${kind.page}${id}` }, id), element("span", { class: "under" })));
    row.querySelector(".under").replaceChildren(...written(experiment));
    while (row.cells.length > 1) row.deleteCell(-1);
    row.append(...kind.cells(experiment));
    return row;
  });
  for (const row of [...body.rows]) {
    if (!rows.includes(row)) row.remove();
  }
  rows.forEach((row, place) => {
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] ?? null);
  });
}
