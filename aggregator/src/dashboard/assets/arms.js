// What is known of each arm.

import { name, places } from "./arm-names.js";
import { ARMS_SHOWN, chart, intervals } from "./charts.js";
import { element, numberCell, shareCell, table } from "./elements.js";
import { lifts } from "./lifts.js";
import { symbols } from "./symbols.js";
import { count, percent, plain, units, visible } from "./text.js";

/** What the chart shows. */
const ESTIMANDS = { mean_reward: "Mean reward", mean_curved_reward: "Mean of g(reward)" };

/** Columns that say nothing of categories: they have no mean, and no order. */
const OF_MEANS = [3, 4, 5, 7, 8];

/** The section, what brings it up to date, and what it asks for. */
export function arms({ signal }) {
  const plot = chart("arms-chart", intervals, signal);
  const { frame, body } = table("arms", "Arms, with bounds that hold at all times at once", [
    { title: "Arm", isNumber: true },
    { title: "Label" },
    { title: "Reports", isNumber: true },
    { title: "Estimate", isNumber: true, hint: "debiased, from all committed reports" },
    { title: "Low", isNumber: true },
    { title: "High", isNumber: true },
    { title: "Traffic now", isNumber: true, hint: "share that the current policy gives" },
    { title: "Shift", isNumber: true, hint: "how far the dishonest reports can have moved the estimate" },
    { title: "Best, posterior", isNumber: true, hint: "posterior probability of the largest mean, from a uniform prior" },
  ]);
  const level = element("select", { id: "level", class: "short" },
    ...[["0.1", "90%"], ["0.05", "95%"], ["0.01", "99%"]].map(([value, title]) =>
      element("option", { value, selected: value === "0.05" }, title)));
  const share = element("input", { id: "dishonest", type: "number", min: "0", max: "100", step: "any", value: "0", class: "short" });
  const lead = element("p", { id: "lead" });
  const summary = element("p", { id: "summary" });
  const caption = element("figcaption");
  const figure = element("figure", {}, plot.place, caption);
  const shares = symbols();
  const lifted = lifts();
  const section = element("section", { "aria-labelledby": "arms-title" },
    element("h2", { id: "arms-title" }, "Arms"), lead, summary,
    element("div", { class: "row" },
      element("label", { for: "level" }, "Confidence"), level,
      element("label", { for: "dishonest" }, "Dishonest reports, in percent"), share),
    figure, frame, ...lifted.parts, shares.frame);
  const dishonest = () => Math.min(1, Math.max(0, Number(share.value) / 100 || 0));
  const show = ({ experiment, estimates, probability_best: best }) => {
    const unit = units(experiment);
    const order = places(estimates.arms);
    body.replaceChildren(...estimates.arms.map((arm) => element("tr",
      { class: [arm.retired && "retired", arm.arm === estimates.best_arm && "best"].filter(Boolean).join(" ") || undefined },
      numberCell(arm.arm, String(arm.arm)),
      element("th", { scope: "row", class: "wraps" }, ...name(arm.label, order.get(arm.arm)),
        arm.retired ? " (retired)" : null, arm.arm === estimates.best_arm ? " (best)" : null),
      numberCell(arm.reports, count(arm.reports)),
      numberCell(arm.estimate, arm.estimate === null ? "" : unit.value(arm.estimate)),
      numberCell(arm.low, unit.value(arm.low)),
      numberCell(arm.high, unit.value(arm.high)),
      shareCell(arm.weight, percent(arm.weight)),
      numberCell(arm.manipulation_shift, unit.size(arm.manipulation_shift)),
      shareCell(best[arm.arm] ?? 0, percent(best[arm.arm] ?? 0)))));
    const isRanked = estimates.estimand !== "frequencies";
    for (const row of frame.querySelectorAll("tr")) {
      for (const place of OF_MEANS) row.cells[place].hidden = !isRanked;
    }
    const confidence = `${plain(100 * (1 - estimates.alpha))}%`;
    shares.show(estimates, confidence);
    lifted.show(estimates, unit, confidence);
    lead.textContent = estimates.summary;
    const leader = estimates.arms.find((arm) => arm.arm === estimates.best_arm);
    summary.replaceChildren(
      element("data", { id: "reports", value: String(estimates.reports) }, `${count(estimates.reports)} reports. `),
      leader ? "Best with confidence "
        : isRanked ? `No arm is best with confidence ${confidence} yet.`
          : "Categories have no order, so no arm is best.",
      ...(leader ? [`${confidence}: `, element("strong", {}, element("bdi", {}, visible(leader.label)))] : []));
    figure.hidden = !isRanked;
    if (!isRanked) return;
    const inChart = [...estimates.arms].sort((a, b) => order.get(a.arm) - order.get(b.arm)).slice(0, ARMS_SHOWN);
    const isCut = inChart.length < estimates.arms.length;
    caption.textContent = `${ESTIMANDS[estimates.estimand] ?? estimates.estimand}: debiased estimates, and intervals of ${confidence} that hold at all times at once`
      + (dishonest() > 0 ? "; dashed, how far dishonest reports can have moved an estimate" : "")
      + (isCut ? `; the ${ARMS_SHOWN} arms with the most reports.` : ".");
    plot.show({
      arms: inChart.map((arm) => ({ ...arm, order: order.get(arm.arm), shift: arm.manipulation_shift })),
      best: estimates.best_arm,
      isRate: unit.isRate,
    });
  };
  const changed = (then) => [level, share, lifted.control].forEach((input) => input.addEventListener("change", then));
  return { section, show, changed, share: dishonest, query: () => `alpha=${level.value}&dishonest_share=${dishonest()}${lifted.query()}` };
}
