// A new experiment.

import { element, problem } from "./elements.js";
import { check, choice, field, number } from "./forms.js";
import { get, post } from "./server.js";

const LEARNERS = [
  ["ldp-ts", "ldp-ts: Thompson sampling, to earn rewards"],
  ["top-two", "top-two: top-two Thompson sampling, to decide which arm is best"],
  ["rand-ada-kl", "rand-ada-kl: less regret in the mean, without a proof"],
  ["truncated-ts", "truncated-ts: Thompson sampling with a prior that is cut"],
  ["ldp-ucb", "ldp-ucb: upper confidence bounds, for comparison"],
  ["uniform", "uniform: all arms alike, for measuring"],
];

const MECHANISMS = [
  ["linear", "linear"], ["quadratic", "quadratic"], ["exponential", "exponential"],
  ["randomized-response", "randomized response (binary rewards)"],
];

/** Shows the form, to those who may call. */
export async function create({ main, signal, announce, ready }) {
  await get("/api/experiments", signal);
  const inputs = {
    id: element("input", { id: "experiment_id", required: true, pattern: "[a-z0-9._\\-]{1,64}", autocomplete: "off", spellcheck: "false" }),
    arms: element("textarea", { id: "arms", required: true, rows: "4", spellcheck: "false" }),
    epsilon: number({ id: "epsilon", required: true, min: "0.000001", max: "32", value: "1" }),
    window: number({ id: "attribution_window_seconds", required: true, min: "0", max: "7776000", step: "1", value: "3600" }),
    delay: number({ id: "release_delay_seconds_max", min: "0", max: "604800", step: "1", value: "3600" }),
    kind: choice("reward_kind", [["binary", "one of two values"], ["bounded", "anything in a range"]]),
    low: number({ id: "reward_low", required: true, value: "0" }),
    high: number({ id: "reward_high", required: true, value: "1" }),
    fallback: number({ id: "default_reward" }),
    outOfRange: choice("out_of_range", [["refuse", "refuse"], ["clamp", "clamp (for a range)"]]),
    mechanism: choice("mechanism", MECHANISMS),
    curvature: number({ id: "curvature", min: "-1", max: "1", value: "1" }),
    learner: choice("learner", LEARNERS),
    floor: number({ id: "floor_weight", min: "0", max: "1", value: "0" }),
    burnIn: number({ id: "burn_in_reports", min: "0", max: "4294967295", step: "1", value: "0" }),
    holdout: number({ id: "holdout_share", min: "0", max: "1", value: "0" }),
    keeping: choice("redraw", [["false", "kept by each installation, which reports once"], ["true", "drawn anew each time, and each reported"]]),
    weight: number({ id: "until_weight_below", min: "0", max: "1", value: "0.01" }),
    days: number({ id: "report_days", min: "0", max: "3650", step: "1", value: "0" }),
    layer: element("input", { id: "layer", autocomplete: "off", spellcheck: "false" }),
    segments: element("input", { id: "segments", autocomplete: "off", spellcheck: "false" }),
    metrics: element("textarea", { id: "metrics", rows: "2", spellcheck: "false" }),
    enrolment: number({ id: "enrolment_share", min: "0.000001", max: "1", value: "1" }),
  };
  const simulation = check("simulation", "The users are simulated: their noise can be repeated, and protects nobody");
  const nonlinear = check("accept_nonlinear_estimand",
    "I know that the server learns the mean of g(reward), and may prefer an arm whose mean reward is lower");
  const draft = check("draft", "Only make a draft: devices see nothing of it until it is started");
  const curvature = field("Curvature", inputs.curvature, "-1 to 1, convex above 0");
  const weight = field("Kept until it weighs less than", inputs.weight, "Share of the traffic, 0 to 1: those who have an arm with less draw another one");
  const days = field("One report in so many days", inputs.days, "0 for one ever");
  const trouble = element("div");
  const adapt = () => {
    const kind = inputs.kind.value;
    const mechanism = inputs.mechanism.value;
    curvature.hidden = mechanism !== "quadratic";
    weight.hidden = days.hidden = inputs.keeping.value === "true";
    const isCurved = mechanism === "exponential" || (mechanism === "quadratic" && inputs.curvature.value !== "0");
    nonlinear.row.hidden = !(isCurved && kind === "bounded");
  };
  let isBusy = false;
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = true;
    trouble.replaceChildren();
    const body = {
      experiment: described(inputs, simulation.input.checked),
      accept_nonlinear_estimand: !nonlinear.row.hidden && nonlinear.input.checked,
      draft: draft.input.checked,
    };
    try {
      const made = await post("/api/experiments", body, signal);
      announce(`${made.experiment_id} was created`);
      location.hash = `#/experiments/${made.experiment_id}`;
    } catch (error) {
      if (signal.aborted) return;
      trouble.append(problem(error.message));
      trouble.scrollIntoView({ block: "nearest" });
    }
    isBusy = false;
  };
  const form = element("form", { id: "create", onsubmit: submit, onchange: adapt },
    element("fieldset", {}, element("legend", {}, "What is tried"),
      field("Name", inputs.id, "1 to 64 of a-z, 0-9, “.”, “_” and “-”; apps ask for it"),
      field("Arms", inputs.arms, "The label of each on a line of its own")),
    element("fieldset", {}, element("legend", {}, "Privacy"),
      field("Epsilon", inputs.epsilon, "Privacy loss of one report in nats: smaller is more private, and takes more users. Apps refuse more than they accept."),
      field("Curve", inputs.mechanism), curvature, nonlinear.row, simulation.row),
    element("fieldset", {}, element("legend", {}, "Rewards"),
      field("Rewards are", inputs.kind),
      field("Lowest", inputs.low), field("Highest", inputs.high),
      field("Without a reward", inputs.fallback, "What is reported then; the lowest, if this is left empty"),
      field("Rewards out of range", inputs.outOfRange),
      field("Attribution window, in seconds", inputs.window, "How long after a choice rewards count; 3600 is an hour. 0 is for simulated users."),
      field("Random delay of reports, in seconds", inputs.delay, "At most so long: 0 to 604800; apps refuse less than 600 unless they say otherwise")),
    element("fieldset", {}, element("legend", {}, "Who takes part"),
      field("An arm is", inputs.keeping), weight, days,
      field("Enrolled share", inputs.enrolment, "Share of the installations, above 0, at most 1; it can be changed later"),
      field("Part of a layer", inputs.layer, "name:from-to, such as checkout:0-0.5; experiments with parts of one layer have no installation in common. Empty: none")),
    element("fieldset", {}, element("legend", {}, "What else is measured"),
      field("Segments", inputs.segments, "name=value,value, such as platform=ios,android: a public property that apps agree to tell. Empty: none"),
      field("Metrics", inputs.metrics, "One on a line: returned:0.1 for a yes or no that a tenth of the assignments report, minutes:0.1:0..60 for a number; with :at-most=0.3 or :at-least=5 an arm beyond that gets no traffic")),
    element("fieldset", {}, element("legend", {}, "Learning"),
      field("Learner", inputs.learner),
      field("Floor weight", inputs.floor, "Least share of the traffic for every arm: 0 to 1 / number of arms"),
      field("Burn-in, in reports", inputs.burnIn, "All arms get the same until each has so many reports"),
      field("Holdout share", inputs.holdout, "Share of the traffic that is spread evenly, whatever the learner says: 0 to 1")),
    draft.row, trouble,
    element("button", { type: "submit", class: "main" }, "Create"));
  adapt();
  main.replaceChildren(element("h1", { tabindex: "-1" }, "New experiment"), element("section", {}, form));
  ready();
}

/** The lines of a text that are not empty. */
function lines(input) {
  return input.value.split("\n").map((line) => line.trim()).filter((line) => line !== "");
}

/** The fields as in a file of `bandana experiment create`. */
function described(inputs, simulation) {
  const value = (input) => (input.value === "" ? undefined : Number(input.value));
  return {
    experiment_id: inputs.id.value,
    arms: lines(inputs.arms),
    epsilon: value(inputs.epsilon),
    attribution_window_seconds: value(inputs.window),
    release_delay_seconds_max: value(inputs.delay),
    reward_kind: inputs.kind.value,
    reward_low: value(inputs.low),
    reward_high: value(inputs.high),
    default_reward: value(inputs.fallback),
    out_of_range: inputs.outOfRange.value,
    mechanism: inputs.mechanism.value,
    curvature: inputs.mechanism.value === "quadratic" ? value(inputs.curvature) : undefined,
    learner: inputs.learner.value,
    floor_weight: value(inputs.floor),
    burn_in_reports: value(inputs.burnIn),
    holdout_share: value(inputs.holdout),
    redraw: inputs.keeping.value === "true",
    until_weight_below: inputs.keeping.value === "true" ? undefined : value(inputs.weight),
    report_days: inputs.keeping.value === "true" ? undefined : value(inputs.days),
    layer: inputs.layer.value.trim() || undefined,
    segments: inputs.segments.value.trim() || undefined,
    metrics: lines(inputs.metrics),
    enrolment_share: value(inputs.enrolment),
    simulation: simulation || undefined,
  };
}
