// All experiments, of both kinds.

import { element, numberCell, problem, table } from "./elements.js";
import { check } from "./forms.js";
import { ServerError, everything, pause } from "./server.js";
import { count, plain } from "./text.js";

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
  let waiting = new AbortController();
  archived.input.addEventListener("change", () => waiting.abort());
  let before = "";
  let isFirst = true;
  while (!signal.aborted) {
    waiting = new AbortController();
    try {
      const wanted = archived.input.checked;
      const found = await Promise.all(["/api/experiments", "/api/trusted"].map((path) => everything(path, wanted, signal)));
      if (isFirst) {
        main.replaceChildren(
          element("div", { class: "row" }, element("h1", { tabindex: "-1" }, "Experiments"),
            element("a", { href: "#/new", class: "button main" }, "New experiment")),
          trouble, ...lists.map(({ section }) => section), archived.row);
        ready();
        isFirst = false;
      }
      trouble.replaceChildren();
      // What an alarm has seen changes all the time; which ones ring does not.
      const now = JSON.stringify(found, (key, value) => (key === "alarms" ? value.map((alarm) => alarm.name) : value));
      if (now !== before) {
        found.forEach((experiments, place) => lists[place].show(experiments));
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
        trouble.replaceChildren(problem(`${error.message} What is below is of earlier.`));
      }
    }
    await pause(INTERVAL, AbortSignal.any([signal, waiting.signal]));
  }
}

/** The section of a kind, and what brings it up to date. */
function list(kind) {
  const { frame, body } = table(kind.id, kind.caption, kind.columns);
  const none = element("p", {}, ...kind.none);
  const title = `${kind.id}-title`;
  const section = element("section", { "aria-labelledby": title },
    element("div", { class: "row" }, element("h2", { id: title }, kind.title),
      kind.mark ? element("span", { class: "chip trusted" }, kind.mark) : null, kind.more),
    none, frame);
  const show = (experiments) => {
    update(body, kind, experiments);
    none.hidden = experiments.length > 0;
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
        element("a", { href: `${kind.page}${id}` }, id)));
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
