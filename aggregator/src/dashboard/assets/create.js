// A new experiment.

import { element, problem } from "./elements.js";
import { check, choice, field, number } from "./forms.js";
import { presets } from "./presets.js";
import { get, post } from "./server.js";

const LEARNERS = [
  ["ldp-ts", "ldp-ts: Thompson sampling, to earn rewards"],
  ["top-two", "top-two: top-two Thompson sampling, to decide which arm is best"],
  ["rand-ada-kl", "rand-ada-kl: less regret on average, without a proof"],
  ["truncated-ts", "truncated-ts: Thompson sampling with a truncated prior"],
  ["ldp-ucb", "ldp-ucb: upper confidence bounds, for comparison"],
  ["uniform", "uniform: equal traffic for all arms, for measuring"],
];

const MECHANISMS = [
  ["linear", "linear"], ["quadratic", "quadratic"], ["exponential", "exponential"],
  ["k-ary", "k-ary: one of several levels (for a range, from an epsilon of about 3 on)"],
  ["randomized-response", "randomized response (binary rewards)"],
];

/** Shows the form, to those who may call: four questions, and the rest with good defaults. Filled
    in from the experiment `from`, if there is one. */
export async function create({ main, signal, announce, ready }, from) {
  // Whoever may not see experiments is asked for a token here.
  const known = await get(`/api/experiments${from ? `/${from}` : ""}`, signal);
  const copied = from ? known.experiment : null;
  const inputs = {
    id: element("input", { id: "experiment_id", required: true, pattern: "[a-z0-9._\\-]{1,64}", autocomplete: "off", spellcheck: "false" }),
    arms: element("textarea", { id: "arms", required: true, rows: "4", spellcheck: "false" }),
    epsilon: number({ id: "epsilon", required: true, min: "0.000001", max: "32", value: "1" }),
    window: number({ id: "attribution_window_seconds", required: true, min: "0", max: "7776000", step: "1", value: "3600" }),
    delay: number({ id: "release_delay_seconds_max", min: "0", max: "604800", step: "1", value: "3600" }),
    kind: choice("reward_kind", [["binary", "one of two values, such as a tap or none"], ["bounded", "anything in a range, such as a rating"],
      ["categorical", "one of several things, which have no order"]]),
    categories: number({ id: "categories", min: "2", max: "16", step: "1", value: "3" }),
    levels: number({ id: "levels", min: "2", max: "16", step: "1", value: "6" }),
    memory: choice("memory", [["", "all days alike"], ["window", "the last days only"], ["discount", "older days less and less"]]),
    windowDays: number({ id: "window_days", min: "1", max: "3650", step: "1", value: "14" }),
    discount: number({ id: "discount_per_day", min: "0.000001", max: "0.999999", value: "0.9" }),
    batch: number({ id: "shuffle_batch", min: "2", max: "16384", step: "1" }),
    low: number({ id: "reward_low", required: true, value: "0" }),
    high: number({ id: "reward_high", required: true, value: "1" }),
    fallback: number({ id: "default_reward" }),
    outOfRange: choice("out_of_range", [["", "clamp in a range, else refuse"], ["refuse", "refuse"], ["clamp", "clamp (for a range)"]]),
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
    costs: element("textarea", { id: "arm_costs", rows: "2", spellcheck: "false" }),
    priors: element("textarea", { id: "priors", rows: "2", spellcheck: "false" }),
    priorDiscount: number({ id: "prior_discount", min: "0.000001", max: "1", value: "0.5" }),
    enrolment: number({ id: "enrolment_share", min: "0.000001", max: "1", value: "1" }),
  };
  const simulation = check("simulation", "The users are simulated: their noise can be repeated, and protects nobody");
  const nonlinear = check("accept_nonlinear_estimand",
    "I know that the server learns the mean of g(reward), and may prefer an arm whose mean reward is lower");
  const draft = check("draft", "Only make a draft: devices see nothing of it until you start it");
  const curvature = field("Curvature", inputs.curvature, "-1 to 1, convex above 0");
  const weight = field("Kept until it weighs less than", inputs.weight, "Share of the traffic, 0 to 1. An installation whose arm has less draws another one");
  const days = field("One report in this many days", inputs.days, "0 means one report ever");
  const categories = field("Number of categories", inputs.categories, "2 to 16. A reaction is the number of its category, counted from 0. Estimates are the share of each category, and all arms get the same traffic");
  const levels = field("Levels", inputs.levels, "2 to 16: rewards are rounded to one of them, in a way that keeps the mean");
  const windowDays = field("Number of days", inputs.windowDays, "Counted back from the newest day with reports");
  const discount = field("A report counts this much of one from the day after", inputs.discount, "Between 0 and 1");
  const ends = element("div", { class: "row" }, field("Lowest", inputs.low), field("Highest", inputs.high));
  const curve = field("Curve", inputs.mechanism);
  const fallback = field("Without a reaction", inputs.fallback, "The reward that is reported then. Empty: the lowest");
  const learner = field("Learner", inputs.learner);
  const memory = field("Learns from", inputs.memory, "For rewards that change over time. Estimates are of all days in any case");
  const trouble = element("div");
  const adapt = () => {
    const kind = inputs.kind.value;
    const mechanism = inputs.mechanism.value;
    const isCategorical = kind === "categorical";
    categories.hidden = !isCategorical;
    // What is about means says nothing of categories.
    for (const part of [ends, curve, learner, memory]) part.hidden = isCategorical;
    levels.hidden = isCategorical || mechanism !== "k-ary";
    windowDays.hidden = isCategorical || inputs.memory.value !== "window";
    discount.hidden = isCategorical || inputs.memory.value !== "discount";
    curvature.hidden = isCategorical || mechanism !== "quadratic";
    weight.hidden = days.hidden = inputs.keeping.value === "true";
    const isCurved = mechanism === "exponential" || (mechanism === "quadratic" && inputs.curvature.value !== "0");
    nonlinear.row.hidden = !(isCurved && kind === "bounded");
    // What is not shown is not asked for, and what is wrong in it does not hold up the rest.
    for (const part of [categories, ends, curve, learner, memory, levels, windowDays, discount, curvature, weight, days]) {
      for (const input of part.querySelectorAll("input, select")) input.disabled = part.hidden;
    }
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
      await takeRecord(copied, made, signal);
      announce(`${made.experiment_id} was created`);
      location.hash = `#/experiments/${made.experiment_id}`;
    } catch (error) {
      if (signal.aborted) return;
      trouble.append(problem(error.message));
      trouble.scrollIntoView({ block: "nearest" });
    }
    isBusy = false;
  };
  const privacy = presets(inputs.epsilon, () => labels(inputs).length, signal);
  inputs.arms.addEventListener("input", privacy.ask);
  const more = element("details", { id: "more" }, element("summary", {}, "More: noise, timing, who takes part, learning"),
    element("fieldset", {}, element("legend", {}, "Noise"),
      curve, levels, curvature, nonlinear.row,
      field("Shuffled in batches of", inputs.batch, "2 to 16384 reports of one arm. A relay shuffles them, and the server sees no single report. bandana plan --shuffle chooses a size. Empty: not shuffled"),
      simulation.row),
    element("fieldset", {}, element("legend", {}, "Reactions"),
      fallback,
      field("Rewards out of range", inputs.outOfRange),
      field("Random delay of reports, in seconds", inputs.delay, "The longest delay: 0 to 604800. Apps refuse less than 600, unless they accept less")),
    element("fieldset", {}, element("legend", {}, "Who takes part"),
      field("An arm is", inputs.keeping), weight, days,
      field("Enrolled share", inputs.enrolment, "Share of the installations, above 0, at most 1; it can be changed later"),
      field("Part of a layer", inputs.layer, "name:from-to, such as checkout:0-0.5. Two experiments with parts of one layer share no installation. Empty: none")),
    element("fieldset", {}, element("legend", {}, "What else is measured"),
      field("Segments", inputs.segments, "A public property that apps agree to tell: name=value,value, such as platform=ios,android. Put a semicolon before the next one. Empty: none"),
      field("Metrics", inputs.metrics, "One on each line: returned:0.1 is a yes or no that a tenth of the assignments report, minutes:0.1:0..60 is a number. With :at-most=0.3 or :at-least=5, an arm beyond the limit gets no traffic")),
    element("fieldset", {}, element("legend", {}, "Learning"),
      learner, memory, windowDays, discount,
      field("Floor weight", inputs.floor, "Least share of the traffic for every arm: 0 to 1 / number of arms"),
      field("Burn-in, in reports", inputs.burnIn, "All arms get the same traffic until each has this many reports"),
      field("Holdout share", inputs.holdout, "Share of the traffic that is spread evenly, whatever the learner says: 0 to 1"),
      field("Costs", inputs.costs, "arm=cost, one on each line, in the unit of the rewards. The learner and the verdicts use rewards less costs"),
      field("Known before", inputs.priors, "arm=mean:worth, one on each line: the mean reward that an arm had, and how many private reports would tell as much. Only the learner uses it"),
      field("Share of the worth that counts", inputs.priorDiscount, "Above 0, at most 1: users and app may have changed")));
  const form = element("form", { id: "create", onsubmit: submit, onchange: adapt },
    element("fieldset", {}, element("legend", {}, "1. What is it called?"),
      field("Name", inputs.id, "1 to 64 of the characters a-z, 0-9, “.”, “_” and “-”. Apps ask for the experiment by this name")),
    element("fieldset", {}, element("legend", {}, "2. What is tried?"),
      field("Arms", inputs.arms, "The label of each on a line of its own")),
    element("fieldset", {}, element("legend", {}, "3. What is a reaction?"),
      field("A reaction is", inputs.kind), categories, ends,
      field("It counts for so many seconds after the choice", inputs.window, "3600 is an hour. 0 is for simulated users.")),
    element("fieldset", {}, element("legend", {}, "4. How private is it?"), ...privacy.parts),
    more, draft.row, trouble,
    element("button", { type: "submit", class: "main" }, "Create"));
  // What is wrong in a part that is closed could not be shown.
  form.addEventListener("invalid", (event) => { if (more.contains(event.target)) more.open = true; }, true);
  if (copied) prefill(inputs, simulation.input, copied);
  adapt();
  main.replaceChildren(element("h1", { tabindex: "-1", id: "create-title" }, "New experiment"),
    ...(copied ? [element("p", { id: "copied", class: "note" }, `The settings are those of ${copied.experiment_id}. Give the experiment another name.`)] : []),
    element("section", { "aria-labelledby": "create-title" }, form));
  ready();
  privacy.ask();
}

const labels = (inputs) => lines(inputs.arms);

/** Fills in an experiment's settings. */
function prefill(inputs, simulation, from) {
  const { rewards, sticky, layer } = from;
  const values = {
    arms: from.arms.filter((arm) => !arm.retired).map((arm) => arm.label).join("\n"),
    epsilon: from.epsilon,
    window: from.attribution_window_seconds,
    delay: from.release_delay_seconds_max,
    kind: rewards.kind,
    low: rewards.low,
    high: rewards.high,
    fallback: rewards.default,
    outOfRange: rewards.out_of_range,
    mechanism: from.mechanism,
    curvature: from.curvature ?? 1,
    learner: from.learner,
    floor: from.floor_weight,
    burnIn: from.burn_in_reports,
    holdout: from.holdout_share,
    keeping: String(sticky === null),
    weight: sticky?.until_weight_below ?? 0.01,
    days: sticky?.report_days ?? 0,
    layer: layer ? `${layer.name}:${layer.from}-${layer.to}` : "",
    segments: from.segmentations.map(({ name, values }) => `${name}=${values.join(",")}`).join("; "),
    metrics: from.metrics.map(asText).join("\n"),
    costs: from.record.arm_costs.map(({ arm, cost }) => `${from.arms[arm].label}=${cost}`).join("\n"),
    enrolment: from.enrolment_share,
    categories: rewards.kind === "categorical" ? from.symbols : 3,
    levels: rewards.kind === "categorical" ? 6 : from.symbols ?? 6,
    memory: from.window_days ? "window" : from.discount_per_day ? "discount" : "",
    windowDays: from.window_days ?? 14,
    discount: from.discount_per_day ?? 0.9,
    batch: from.shuffled?.batch ?? "",
  };
  for (const [name, value] of Object.entries(values)) inputs[name].value = value;
  simulation.checked = from.simulation;
}

/** A metric as the form takes it. */
function asText({ name, kind, share, low, high, at_most: most, at_least: least }) {
  const range = kind === "binary" ? "" : `:${low}..${high}`;
  return `${name}:${share}${range}${most === null ? "" : `:at-most=${most}`}${least === null ? "" : `:at-least=${least}`}`;
}

/** Has the copy begin with what is written about the first one, but for its decision. */
async function takeRecord(from, made, signal) {
  if (!from) return;
  const { title, hypothesis, owner, tags, links } = from.record;
  const harm = from.record.on_harm === "pause" ? { on_harm: "pause" } : {};
  if (harm.on_harm || title || hypothesis || owner || tags.length || links.length) {
    // If that fails the copy is there, and its page has a form for it.
    await post(`/api/experiments/${made.experiment_id}/record`, { title, hypothesis, owner, tags, links, ...harm }, signal).catch(() => {});
  }
}

/** The lines of a text that are not empty. */
function lines(input) {
  return input.value.split("\n").map((line) => line.trim()).filter((line) => line !== "");
}

/** The fields as in a file of `bandana experiment create`. */
function described(inputs, simulation) {
  const value = (input) => (input.value === "" ? undefined : Number(input.value));
  const isCategorical = inputs.kind.value === "categorical";
  const isKept = inputs.keeping.value !== "true";
  // Of categories there are a number and nothing else.
  const ofMeans = isCategorical ? { categories: value(inputs.categories) } : {
    reward_low: value(inputs.low),
    reward_high: value(inputs.high),
    mechanism: inputs.mechanism.value,
    levels: inputs.mechanism.value === "k-ary" ? value(inputs.levels) : undefined,
    curvature: inputs.mechanism.value === "quadratic" ? value(inputs.curvature) : undefined,
    learner: inputs.learner.value,
    window_days: inputs.memory.value === "window" ? value(inputs.windowDays) : undefined,
    discount_per_day: inputs.memory.value === "discount" ? value(inputs.discount) : undefined,
  };
  return {
    experiment_id: inputs.id.value,
    arms: labels(inputs),
    epsilon: value(inputs.epsilon),
    attribution_window_seconds: value(inputs.window),
    release_delay_seconds_max: value(inputs.delay),
    reward_kind: inputs.kind.value,
    ...ofMeans,
    default_reward: value(inputs.fallback),
    out_of_range: inputs.outOfRange.value || undefined,
    shuffle_batch: value(inputs.batch),
    floor_weight: value(inputs.floor),
    burn_in_reports: value(inputs.burnIn),
    holdout_share: value(inputs.holdout),
    redraw: !isKept,
    until_weight_below: isKept ? value(inputs.weight) : undefined,
    report_days: isKept ? value(inputs.days) : undefined,
    layer: inputs.layer.value.trim() || undefined,
    segments: inputs.segments.value.split(";").map((one) => one.trim()).filter(Boolean),
    metrics: lines(inputs.metrics),
    arm_costs: lines(inputs.costs),
    priors: lines(inputs.priors),
    prior_discount: lines(inputs.priors).length ? value(inputs.priorDiscount) : undefined,
    enrolment_share: value(inputs.enrolment),
    simulation: simulation || undefined,
  };
}
