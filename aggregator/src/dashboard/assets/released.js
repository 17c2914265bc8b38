// What was released of an experiment with a trusted curator: there is nothing else to see.

import { ARMS_SHOWN, chart, noisyMeans } from "./charts.js";
import { element, numberCell, table } from "./elements.js";
import { count, estimate, plain } from "./text.js";

/** The section, and what brings it up to date. */
export function released({ signal }) {
  const plot = chart("means-chart", noisyMeans, signal);
  const caption = element("figcaption");
  const figure = element("figure", {}, plot.place, caption);
  const means = table("means", "Released means, with their noise", [
    { title: "Arm", isNumber: true },
    { title: "Mean", isNumber: true, hint: "with noise; none if nothing was released, or the action was eliminated" },
    { title: "Rewards behind it", isNumber: true },
    { title: "Noise deviation", isNumber: true, hint: "standard deviation of the noise in the mean" },
    { title: "Action", isNumber: true },
  ]);
  // Only some algorithms have vectors for arms.
  const actionTitle = means.frame.querySelector("thead th:last-child");
  const parameter = table("parameter", "Released parameter, by coordinates, with noise", [
    { title: "Coordinate", isNumber: true },
    { title: "Value", isNumber: true },
  ]);
  const summary = element("p", { id: "summary" });
  const section = element("section", { "aria-labelledby": "released-title" },
    element("h2", { id: "released-title" }, "Released statistics"), summary, figure, means.frame, parameter.frame);
  let before = "";
  const show = ({ actions }, now) => {
    const key = JSON.stringify(now);
    if (key === before) return;
    before = key;
    summary.replaceChildren(
      element("data", { id: "rewards", value: String(now.rewards) }, `Rewards that count: ${count(now.rewards)}`), "; ",
      element("data", { id: "releases", value: String(now.releases) }, `releases of statistics: ${count(now.releases)}`),
      ". All numbers below are released ones, with noise; later rewards are in none of them.");
    means.frame.hidden = now.parameter !== null;
    parameter.frame.hidden = now.parameter === null;
    actionTitle.hidden = actions === null;
    const known = now.means.filter(({ mean }) => mean !== null);
    figure.hidden = known.length === 0;
    if (now.parameter !== null) {
      parameter.body.replaceChildren(...now.parameter.map((value, place) => element("tr", {},
        element("th", { scope: "row", class: "number" }, String(place)), numberCell(value, estimate(value)))));
      return;
    }
    means.body.replaceChildren(...now.means.map(({ arm, mean, rewards, noise_deviation: noise }) => element("tr", {},
      element("th", { scope: "row", class: "number" }, element("data", { value: String(arm) }, String(arm))),
      numberCell(mean, mean === null ? "" : estimate(mean)),
      numberCell(rewards, rewards === null ? "" : count(rewards)),
      numberCell(noise, noise === null ? "" : estimate(noise)),
      actions === null ? null : element("td", { class: "number" }, actions[arm].map(plain).join(", ")))));
    const inChart = known.sort((a, b) => b.mean - a.mean).slice(0, ARMS_SHOWN).sort((a, b) => a.arm - b.arm);
    caption.textContent = "Released means"
      + (actions === null ? ", and one standard deviation of their noise to both sides: not an interval of confidence" : " of the actions that are left")
      + (inChart.length < known.length ? `; the ${ARMS_SHOWN} largest.` : ".");
    plot.show({ means: inChart });
  };
  return { section, show };
}
