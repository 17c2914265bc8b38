// The metrics beside the rewards, and the rewards in each segment.

import { name, places } from "./arm-names.js";
import { element, numberCell, shareCell, table } from "./elements.js";
import { sharesIn } from "./symbols.js";
import { count, estimate, percent, plain, visible } from "./text.js";

const COLUMNS = [
  { title: "Arm", isNumber: true },
  { title: "Label" },
  { title: "Reports", isNumber: true },
  { title: "Estimate", isNumber: true },
  { title: "Low", isNumber: true },
  { title: "High", isNumber: true },
];

/** Columns that say nothing of categories. */
const OF_MEANS = [3, 4, 5];

/** The section, and what brings it up to date. It is hidden where only rewards are measured. */
export function cells() {
  const parts = element("div");
  const section = element("section", { id: "cells", "aria-labelledby": "cells-title", hidden: true },
    element("h2", { id: "cells-title" }, "Metrics and segments"), parts);
  const show = ({ estimates }) => {
    const { metrics = [], segments = [], arms, estimand } = estimates;
    section.hidden = metrics.length + segments.length === 0;
    const order = places(arms);
    parts.replaceChildren(
      ...metrics.map((metric) => ofMetric(metric, order)),
      ...segments.flatMap((segment, place) => [ofSegment(segment, place, order, estimand),
        // Categories have no mean, and a share for each.
        ...(estimand === "frequencies" ? [sharesIn(`shares-${place}`, `Share of each category where ${where(segment)}`, segment.arms)] : [])]));
  };
  return { section, show };
}

function ofMetric(metric, order) {
  const isHarmful = (arm) => metric.harmful_arms.includes(arm.arm);
  const { frame, body } = table(`metric-${metric.name}`, `${metric.name}${limited(metric)}`,
    [...COLUMNS, { title: "" }]);
  body.replaceChildren(...metric.arms.map((arm) => element("tr",
    { class: [arm.retired && "retired", isHarmful(arm) && "harmful"].filter(Boolean).join(" ") || undefined },
    ...numbers(arm, order), element("td", {}, isHarmful(arm) ? (arm.weight > 0 ? "does harm, and so do all in play" : "does harm, no traffic") : ""))));
  return frame;
}

/** The installations of a table, in words. */
function where({ segmentation, value }) {
  return `${segmentation} is ${visible(value)}`;
}

function ofSegment(segment, place, order, estimand) {
  const isRanked = estimand !== "frequencies";
  const { frame, body } = table(`segment-${place}`, `${isRanked ? "Rewards" : "Reports"} where ${where(segment)}`,
    [...COLUMNS, { title: "Traffic now", isNumber: true, hint: "share that the current policy gives to them" }]);
  body.replaceChildren(...segment.arms.map((arm) => element("tr", { class: arm.retired ? "retired" : undefined },
    ...numbers(arm, order), shareCell(arm.weight, percent(arm.weight)))));
  for (const row of isRanked ? [] : frame.querySelectorAll("tr")) {
    for (const place of OF_MEANS) row.cells[place].hidden = true;
  }
  return frame;
}

function numbers(arm, order) {
  return [
    numberCell(arm.arm, String(arm.arm)),
    element("th", { scope: "row", class: "wraps" }, ...name(arm.label, order.get(arm.arm))),
    numberCell(arm.reports, count(arm.reports)),
    numberCell(arm.estimate, arm.estimate === null ? "" : estimate(arm.estimate)),
    numberCell(arm.low, estimate(arm.low)),
    numberCell(arm.high, estimate(arm.high)),
  ];
}

/** A limit in words, to follow a name. */
function limited({ at_most: most, at_least: least }) {
  if (most !== null) return `, at most ${plain(most)}`;
  return least !== null ? `, at least ${plain(least)}` : "";
}

/** Sentences about arms that do harm. */
export function harms({ metrics = [] }) {
  return metrics.flatMap((metric) => metric.arms
    .filter((arm) => !arm.retired && metric.harmful_arms.includes(arm.arm))
    .map((arm) => element("p", { class: "harm" }, element("strong", {}, element("bdi", {}, visible(arm.label))),
      arm.weight > 0 ? " does harm, and keeps its traffic, since all in play do harm" : " does harm and gets no traffic",
      `: ${metric.name} is ${estimate(arm.estimate)}${limited(metric)}.`)));
}
