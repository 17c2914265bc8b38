// What an experiment with a trusted curator tells about its users, and what it does not.

import { element, facts } from "./elements.js";
import { count, plain } from "./text.js";

const PROTECTED = [
  "Each single reward, from everybody who sees recommendations and releases, such as this page. Whatever the reward was, these are nearly as likely.",
  "It holds whatever users play, and whatever is known of all the others.",
];

const OPEN = [
  "Rewards, from this server. Whoever runs it, or can read its store, can see every reward as it comes, and those of which nothing was released yet.",
  "That somebody takes part, what was played, and when; and how many rewards there are.",
];

/** δ at which ρ is told as an ε too. */
const DELTA = 1e-6;

/** The section, and what brings it up to date. */
export function protection() {
  const list = element("div");
  const sentences = (title, items) => element("div", {},
    element("h3", {}, title),
    element("ul", {}, ...items.map((item) => element("li", {}, item))));
  const section = element("section", { "aria-labelledby": "privacy-title" },
    element("h2", { id: "privacy-title" }, "Privacy"), list,
    element("div", { class: "columns" },
      sentences("Protected", PROTECTED), sentences("Not protected", OPEN)));
  let before = null;
  const show = (experiment) => {
    // All of it is decided when it is created.
    if (before === experiment.experiment_id) return;
    before = experiment.experiment_id;
    list.replaceChildren(facts(rows(experiment)));
  };
  return { section, show };
}

function rows(experiment) {
  const { rho, algorithm, arms, beta, actions, delta, dimension } = experiment;
  // Bun and Steinke 2016, Proposition 1.3.
  const epsilon = rho + 2 * Math.sqrt(rho * Math.log(1 / DELTA));
  const among = arms !== null ? `${count(arms)} arms`
    : actions !== null ? `${count(actions.length)} actions` : `actions with ${count(dimension)} coordinates`;
  const setting = beta !== null ? `, β ${plain(beta)}` : delta !== null ? `, δ ${plain(delta)}` : "";
  return [
    ["Rewards", `reach this server; ${plain(experiment.reward_low)} to ${plain(experiment.reward_high)}`],
    ["Rho", element("data", { value: String(rho), id: "rho" }, plain(rho)),
      ": what one reward costs at most, in zero-concentrated differential privacy"],
    ["As an epsilon", `at most ${plain(epsilon)} nats for one reward, but for a probability of ${DELTA}`],
    ["Several rewards", `k of one person cost up to k² times as much: ten of them a rho of ${plain(100 * rho)}`],
    ["Algorithm", `${algorithm}${setting}, among ${among}`],
  ];
}
