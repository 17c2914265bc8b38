// The reports of each day.

import { name, places } from "./arm-names.js";
import { COLOURS, chart, traffic } from "./charts.js";
import { element, numberCell, shareCell, table } from "./elements.js";
import { count, date, percent } from "./text.js";

/** Days that are shown. */
export const DAYS = 60;

/** The section, and what brings it up to date. */
export function daily({ signal }) {
  const plot = chart("traffic-chart", traffic, signal);
  const legend = element("ul", { class: "legend", "aria-hidden": "true" });
  const figure = element("figure", {}, plot.place, legend,
    element("figcaption", {}, `Reports of each of the last ${DAYS} days (by UTC), by arm.`));
  const { frame, body } = table("tallies", "Reports of each day", [
    { title: "Day" }, { title: "Label" }, { title: "Reports", isNumber: true }, { title: "Of the day", isNumber: true },
  ]);
  const none = element("p", { class: "note" }, "No reports have come in these days.");
  const more = element("details", {}, element("summary", {}, "The same as a table"), frame);
  const section = element("section", { "aria-labelledby": "traffic-title" },
    element("h2", { id: "traffic-title" }, "Traffic"), none, figure, more);
  let before = "";
  const show = (cells, { experiment: now, estimates }) => {
    const rows = byArm(cells, now);
    const key = JSON.stringify([rows, now.revision]);
    if (key === before) return;
    before = key;
    none.hidden = rows.length > 0;
    figure.hidden = more.hidden = rows.length === 0;
    if (rows.length === 0) return;
    const order = places(estimates.arms);
    const label = (arm) => now.arms[arm]?.label ?? String(arm);
    const days = everyDay(rows);
    const stacks = stacked(rows, days, order, label);
    plot.show({ days, stacks });
    legend.replaceChildren(...stacks.map((stack) => element("li", {}, ...name(stack.label, stack.order))));
    const sums = new Map(days.map((day) => [day, 0]));
    for (const row of rows) sums.set(row.day, sums.get(row.day) + row.reports);
    body.replaceChildren(...rows.toReversed().map((row) => element("tr", {},
      element("th", { scope: "row" }, date(row.day)),
      element("td", { class: "wraps" }, ...name(label(row.arm), order.get(row.arm) ?? COLOURS)),
      numberCell(row.reports, count(row.reports)),
      shareCell(row.reports / sums.get(row.day), percent(row.reports / sums.get(row.day))))));
  };
  return { section, show };
}

/** The reports of each day and arm, from those of each day and cell. */
function byArm(cells, { segmentations, metrics, holdout_group: holdout, private_context: context }) {
  const segments = segmentations.reduce((product, { values }) => product * values.length, 1);
  const groups = holdout > 0 ? 2 : 1;
  const ofArm = segments * groups * (metrics.length + 1) * ((context?.features.length ?? 0) + 1);
  const rows = new Map();
  for (const { day, arm: cell, reports } of cells) {
    const arm = Math.floor(cell / ofArm);
    const key = `${day} ${arm}`;
    if (!rows.has(key)) rows.set(key, { day, arm, reports: 0 });
    rows.get(key).reports += reports;
  }
  return [...rows.values()];
}

function everyDay(rows) {
  const [first, last] = [rows[0].day, rows.at(-1).day];
  return Array.from({ length: last - first + 1 }, (_, place) => first + place);
}

/** For each arm with a colour of its own its reports by day, and for all others theirs. */
function stacked(rows, days, order, label) {
  const stacks = new Map();
  for (const { day, arm, reports } of rows) {
    const place = Math.min(order.get(arm) ?? COLOURS, COLOURS);
    if (!stacks.has(place)) {
      const title = place < COLOURS ? label(arm) : "other arms";
      stacks.set(place, { order: place, label: title, reports: days.map(() => 0) });
    }
    stacks.get(place).reports[day - days[0]] += reports;
  }
  return [...stacks.values()].sort((a, b) => a.order - b.order);
}
