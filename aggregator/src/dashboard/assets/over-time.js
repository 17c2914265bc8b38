// What was known of each arm at the end of each day.

import { name, places } from "./arm-names.js";
import { COLOURS, chart, overTime } from "./charts.js";
import { element, numberCell, table } from "./elements.js";
import { count, plain, units } from "./text.js";

/** Most rows of the table: the newest days. The export has all. */
const ROWS = 400;

/** The section, and what brings it up to date. */
export function history({ signal }) {
  const plot = chart("over-time-chart", overTime, signal);
  const legend = element("ul", { class: "legend", "aria-hidden": "true" });
  const caption = element("figcaption");
  const figure = element("figure", {}, plot.place, legend, caption);
  const { frame, body } = table("over-time", "Estimates at the end of each day", [
    { title: "Day" }, { title: "Label" }, { title: "Reports", isNumber: true, hint: "of that day and of those before it" },
    { title: "Estimate", isNumber: true }, { title: "Low", isNumber: true }, { title: "High", isNumber: true },
  ]);
  const none = element("p", { class: "note" }, "There are no reports yet.");
  const cut = element("p", { class: "note", hidden: true }, "Only the newest days are listed; the export has all.");
  const more = element("details", {}, element("summary", {}, "The same as a table"), frame, cut);
  const section = element("section", { id: "history", "aria-labelledby": "over-time-title" },
    element("h2", { id: "over-time-title" }, "Over time"), none, figure, more);
  let before = "";
  const show = (known, { experiment: now, estimates }) => {
    // Categories have no mean: their shares are in the export.
    section.hidden = known.estimand === "frequencies";
    const key = JSON.stringify([known, now.revision]);
    if (section.hidden || key === before) return;
    before = key;
    const { days, alpha } = known;
    none.hidden = days.length > 0;
    figure.hidden = more.hidden = days.length === 0;
    if (days.length === 0) return;
    const unit = units(now);
    const order = places(estimates.arms);
    const place = (arm) => order.get(arm) ?? COLOURS;
    const lines = linesOf(days, place);
    plot.show({ days: days.map(({ day }) => day), lines, isRate: unit.isRate });
    legend.replaceChildren(...lines.map((line) => element("li", {}, ...name(line.label, line.order))));
    const isCut = now.arms.length > COLOURS;
    caption.textContent = `Estimates at the end of each day (by UTC), from its reports and those of all days before it, with intervals of ${plain(100 * (1 - alpha))}% that hold on all days at once`
      + (isCut ? `; the ${COLOURS} arms with the most reports.` : ".");
    const rows = days.flatMap(({ day, arms }) => arms.map((arm) => ({ day, ...arm }))).reverse();
    cut.hidden = rows.length <= ROWS;
    body.replaceChildren(...rows.slice(0, ROWS).map((row) => element("tr", { class: row.retired ? "retired" : undefined },
      element("th", { scope: "row" }, row.day),
      element("td", { class: "wraps" }, ...name(row.label, place(row.arm))),
      numberCell(row.reports, count(row.reports)),
      numberCell(row.estimate, row.estimate === null ? "" : unit.value(row.estimate)),
      numberCell(row.low, unit.value(row.low)),
      numberCell(row.high, unit.value(row.high)))));
  };
  return { section, show };
}

/** For each arm with a colour of its own its points by day; null where it has no reports yet. */
function linesOf(days, place) {
  const lines = new Map();
  days.forEach(({ arms }, at) => {
    for (const { arm, label, estimate, low, high } of arms) {
      if (place(arm) >= COLOURS) continue;
      if (!lines.has(arm)) {
        const empty = () => days.map(() => null);
        lines.set(arm, { arm, label, order: place(arm), estimate: empty(), low: empty(), high: empty() });
      }
      Object.entries({ estimate, low, high }).forEach(([name, value]) => { lines.get(arm)[name][at] = value; });
    }
  });
  return [...lines.values()].sort((a, b) => a.order - b.order);
}
