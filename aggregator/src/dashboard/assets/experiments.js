// All experiments.

import { element, numberCell, problem, table } from "./elements.js";
import { ServerError, get, pause } from "./server.js";
import { count, plain } from "./text.js";

/** Between two looks, in milliseconds. */
const INTERVAL = 3000;

/** Shows the list, and keeps it up to date. */
export async function experiments({ main, signal, announce, ready }) {
  const trouble = element("div");
  const { frame, body } = table("experiments", "Experiments, by name", [
    { title: "Experiment" },
    { title: "State" },
    { title: "Reports", isNumber: true },
    { title: "Arms in play", isNumber: true },
    { title: "Epsilon", isNumber: true, hint: "nats for each report" },
    { title: "Learner" },
  ]);
  const none = element("p", { hidden: true }, "There are no experiments yet. ",
    element("a", { href: "#/new" }, "Create the first one."));
  let before = "";
  let isFirst = true;
  while (!signal.aborted) {
    try {
      const { experiments } = await get("/api/experiments", signal);
      if (isFirst) {
        main.replaceChildren(
          element("div", { class: "row" }, element("h1", { tabindex: "-1" }, "Experiments"),
            element("a", { href: "#/new", class: "button main" }, "New experiment")),
          trouble, element("section", {}, none, frame));
        ready();
        isFirst = false;
      }
      trouble.replaceChildren();
      // What an alarm has seen changes all the time; which ones ring does not.
      const now = JSON.stringify(experiments, (key, value) => (key === "alarms" ? value.map((alarm) => alarm.name) : value));
      if (now !== before) {
        update(body, experiments);
        none.hidden = experiments.length > 0;
        frame.hidden = experiments.length === 0;
        if (before) announce(`${count(experiments.length)} experiments, updated`);
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
    await pause(INTERVAL, signal);
  }
}

/** Rows are kept, so that a link that has the focus keeps it. */
function update(body, experiments) {
  const known = new Map([...body.rows].map((row) => [row.dataset.experiment, row]));
  const rows = experiments.map((experiment) => {
    const inPlay = experiment.arms.filter((arm) => !arm.retired).length;
    const id = experiment.experiment_id;
    const row = known.get(id) ?? element("tr", { "data-experiment": id },
      element("th", { scope: "row", class: "wraps" },
        element("a", { href: `#/experiments/${id}` }, id)));
    while (row.cells.length > 1) row.deleteCell(-1);
    row.append(
      element("td", {}, element("span", { class: `chip ${experiment.state}` }, experiment.state),
        experiment.simulation ? " simulated " : " ",
        experiment.alarms.length ? element("span", { class: "chip lost", title: experiment.alarms.map((alarm) => alarm.name).join(", ") },
          experiment.alarms.length === 1 ? "1 alarm" : `${experiment.alarms.length} alarms`) : ""),
      numberCell(experiment.reports, count(experiment.reports)),
      numberCell(inPlay, count(inPlay)),
      numberCell(experiment.epsilon, plain(experiment.epsilon)),
      element("td", {}, experiment.learner));
    return row;
  });
  for (const row of [...body.rows]) {
    if (!rows.includes(row)) row.remove();
  }
  rows.forEach((row, place) => {
    if (body.rows[place] !== row) body.insertBefore(row, body.rows[place] ?? null);
  });
}
