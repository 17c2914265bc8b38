// What an experiment tells about its users, and what it does not.

import { chart, likelihood } from "./charts.js";
import { element, facts } from "./elements.js";
import { percent, plain } from "./text.js";

const MECHANISMS = {
  linear: "linear", quadratic: "quadratic", exponential: "exponential",
  "randomized-response": "randomized response", "k-ary": "k-ary randomized response",
};

const PROTECTED = [
  "The reward of an assignment, and whether there was one. It is protected from everybody, this server included: the device turns it into one random bit, or one of a few symbols.",
  "All rewards of an installation together: by the sum of the epsilons of its reports, up to the budget that its app has set.",
];

const OPEN = [
  "That a device takes part, and how often: the server gets one report for each assignment.",
  "Which arm a report is about, and, up to the release delay, when.",
  "The network address, unless a relay or a proxy is in between. This server does not keep it.",
];

/** The section, and what brings it up to date. */
export function privacy({ signal }) {
  const list = element("div");
  const curve = chart("curve-chart", likelihood, signal);
  const sentences = (title, items) => element("div", {},
    element("h3", {}, title),
    element("ul", {}, ...items.map((item) => element("li", {}, item))));
  const figure = element("figure", {}, curve.place,
    element("figcaption", {}, "How likely a device sends a 1, by the reward."));
  const section = element("section", { "aria-labelledby": "privacy-title" },
    element("h2", { id: "privacy-title" }, "Privacy"),
    element("div", { class: "columns" }, list, figure),
    element("div", { class: "columns" },
      sentences("Protected", PROTECTED), sentences("Not protected", OPEN)));
  let before = "";
  const show = (moment, share) => {
    const now = JSON.stringify([moment.experiment.revision, moment.curve, moment.estimates.estimand, share]);
    if (now === before) return;
    before = now;
    list.replaceChildren(facts(rows(moment, share)));
    // Only a bit has one.
    figure.hidden = moment.curve.length === 0;
    if (!figure.hidden) curve.show(moment);
  };
  return { section, show };
}

function rows({ experiment, estimates, curve, response }, share) {
  const { epsilon, certified_epsilon: certified, rewards } = experiment;
  const mechanism = MECHANISMS[experiment.mechanism] ?? experiment.mechanism;
  const curvature = experiment.curvature === null ? "" : `, curvature ${plain(experiment.curvature)}`;
  const what = response === null ? "bit" : "symbol";
  const shift = estimates.arms[0]?.manipulation_shift ?? 0;
  return [
    ["Epsilon", element("data", { value: String(epsilon), id: "epsilon" }, plain(epsilon)), " nats for each report"],
    ["Certified epsilon", element("data", { value: String(certified), id: "certified-epsilon" }, plain(certified)),
      ` nats: no ${what} makes any reward more than ${plain(Math.exp(certified))} times as likely against any other`],
    ...shuffling(experiment.shuffled),
    ["Mechanism", `${mechanism}${curvature}`],
    response === null ? theBit(curve) : theSymbol(response, estimates.estimand),
    ["Rewards", `${rewards.kind}, ${plain(rewards.low)} to ${plain(rewards.high)}; without one, ${plain(rewards.default)} is reported`],
    ["Estimates", `of ${ESTIMANDS[estimates.estimand] ?? estimates.estimand}`],
    ["Manipulation gain", element("data", { value: String(estimates.manipulation_gain), id: "gain" }, plain(estimates.manipulation_gain)),
      `: one dishonest ${what} moves a debiased sum by this much, however few there are`],
    ["Manipulation shift", share > 0
      ? `if ${percent(share)} of the reports are dishonest, estimates are at most ${plain(shift)} from what honest ones would show`
      : "none is assumed; set the share of dishonest reports above"],
    ["Users", experiment.simulation ? "simulated: noise that can be repeated protects nobody" : "real"],
  ];
}

/** What shuffling is worth, as `bandana experiment show` has it. */
function shuffling(shuffled) {
  if (shuffled === null) return [];
  const { batch, delta, central_epsilon: central, central_epsilon_with_colluders: colluded } = shuffled;
  return [
    ["Central epsilon", element("data", { value: String(central), id: "central-epsilon" }, plain(central)),
      ` nats for each report, with a delta of ${delta.toExponential()}: this server sees a report among the ${plain(batch)} of its batch only. `
      + `${plain(colluded)} if a tenth of the batch colludes with it; the epsilon above if the relay does`],
  ];
}

const ESTIMANDS = {
  mean_reward: "the mean reward, in its own units",
  mean_curved_reward: "the mean of g(reward), with rewards scaled to 0..1: the order of the arms can differ from that of their mean rewards",
  frequencies: "the share of each category, for every arm",
};

function theBit(curve) {
  const [low, high] = [curve[0], curve.at(-1)];
  return ["The bit is 1", `with probability ${percent(low.probability_of_one)} for a reward of ${plain(low.reward)}, `
    + `${percent(high.probability_of_one)} for ${plain(high.reward)}`];
}

function theSymbol({ symbols, probability_of_truth: truth, probability_of_other: other }, estimand) {
  const isCategory = estimand === "frequencies";
  const name = isCategory ? "category" : "level";
  const rounding = isCategory ? "" : `A reward is rounded at random to one of ${symbols} levels, which keeps its mean. `;
  return ["The symbol is", element("data", { value: String(truth), id: "truth" },
    `${rounding}The true ${name} with probability ${percent(truth)}, each of the ${symbols - 1} others with ${percent(other)}`)];
}
