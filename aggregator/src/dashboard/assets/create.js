// A new experiment.

import { element, problem } from "./elements.js";
import { asked, check, choice, field, lines, read } from "./forms.js";
import { presets } from "./presets.js";
import { get, post } from "./server.js";
import { SETTINGS } from "./settings.js";

/** Shows the form, to those who may call: four questions, and the rest with good defaults. Filled
    in from the experiment `from`, if there is one. */
export async function create({ main, signal, announce, ready }, from) {
  // Whoever may not see experiments is asked for a token here.
  const known = await get(`/api/experiments${from ? `/${from}` : ""}`, signal);
  const copied = from ? known.experiment : null;
  const inputs = Object.fromEntries(SETTINGS.map((setting) => [setting.key, asked(setting)]));
  const rows = Object.fromEntries(SETTINGS.map(({ key, label, note }) => [key, field(label, inputs[key], note)]));
  const memories = choice("memory", [["", "all days alike"], ["window", "the last days only"], ["discount", "older days less and less"]]);
  const simulation = check("simulation", "The users are simulated: their noise can be repeated, and protects nobody");
  const nonlinear = check("accept_nonlinear_estimand",
    "I know that the server learns the mean of g(reward), and may prefer an arm whose mean reward is lower");
  const draft = check("draft", "Only make a draft: devices see nothing of it until you start it");
  const ends = element("div", { class: "row" }, rows.reward_low, rows.reward_high);
  const memory = field("Learns from", memories, "For rewards that change over time. Estimates are of all days in any case");
  const trouble = element("div");
  const adapt = () => {
    const kind = inputs.reward_kind.value;
    const mechanism = inputs.mechanism.value;
    const isCategorical = kind === "categorical";
    const isRedrawn = inputs.redraw.value === "true";
    // What is about means says nothing of categories.
    const hidden = new Map([[rows.categories, !isCategorical], [ends, isCategorical], [rows.mechanism, isCategorical],
      [rows.learner, isCategorical], [memory, isCategorical], [rows.levels, isCategorical || mechanism !== "k-ary"],
      [rows.window_days, isCategorical || memories.value !== "window"],
      [rows.discount_per_day, isCategorical || memories.value !== "discount"],
      [rows.curvature, isCategorical || mechanism !== "quadratic"],
      [rows.until_weight_below, isRedrawn], [rows.report_days, isRedrawn]]);
    const isCurved = mechanism === "exponential" || (mechanism === "quadratic" && inputs.curvature.value !== "0");
    nonlinear.row.hidden = !(isCurved && kind === "bounded");
    // What is not shown is not asked for, and what is wrong in it does not hold up the rest.
    for (const [part, isHidden] of hidden) {
      part.hidden = isHidden;
      for (const input of part.querySelectorAll("input, select")) input.disabled = isHidden;
    }
  };
  let isBusy = false;
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = true;
    trouble.replaceChildren();
    const body = {
      experiment: { ...described(inputs), simulation: simulation.input.checked || undefined },
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
  const privacy = presets(inputs.epsilon, rows.epsilon, () => lines(inputs.arms).length, signal);
  inputs.arms.addEventListener("input", privacy.ask);
  const questions = [
    ["1. What is it called?", rows.experiment_id],
    ["2. What is tried?", rows.arms],
    ["3. What is a reaction?", rows.reward_kind, rows.categories, ends, rows.attribution_window_seconds],
    ["4. How private is it?", ...privacy.parts],
  ];
  const isAsked = (row) => questions.flat().some((part) => part.contains?.(row));
  const others = Map.groupBy(SETTINGS.filter(({ key }) => !isAsked(rows[key])), ({ heading }) => heading);
  const fieldset = ([legend, ...parts]) => element("fieldset", {}, element("legend", {}, legend), ...parts);
  const more = element("details", { id: "more" }, element("summary", {}, "More: noise, timing, who takes part, learning"),
    ...[...others].map(([heading, settings]) => fieldset([heading, ...settings.map(({ key }) => rows[key])])));
  rows.curvature.after(nonlinear.row, simulation.row);
  rows.window_days.before(memory);
  const form = element("form", { id: "create", onsubmit: submit, onchange: adapt },
    ...questions.map(fieldset), more, draft.row, trouble,
    element("button", { type: "submit", class: "main" }, "Create"));
  // What is wrong in a part that is closed could not be shown.
  form.addEventListener("invalid", (event) => { if (more.contains(event.target)) more.open = true; }, true);
  if (copied) {
    memories.value = copied.window_days ? "window" : copied.discount_per_day ? "discount" : "";
    simulation.input.checked = copied.simulation;
    prefill(inputs, copied);
  }
  adapt();
  main.replaceChildren(element("h1", { tabindex: "-1", id: "create-title" }, "New experiment"),
    ...(copied ? [element("p", { id: "copied", class: "note" }, `The settings are those of ${copied.experiment_id}. Give the experiment another name.`)] : []),
    element("section", { "aria-labelledby": "create-title" }, form));
  ready();
  privacy.ask();
}

/** Fills in an experiment's settings: those that the server names as the form does, and the others. */
function prefill(inputs, from) {
  const { rewards, sticky, layer } = from;
  const isCategorical = rewards.kind === "categorical";
  const values = {
    ...from,
    experiment_id: null,
    arms: from.arms.filter((arm) => !arm.retired).map((arm) => arm.label).join("\n"),
    reward_kind: rewards.kind,
    reward_low: rewards.low,
    reward_high: rewards.high,
    default_reward: rewards.default,
    out_of_range: rewards.out_of_range,
    categories: isCategorical ? from.symbols : null,
    levels: isCategorical ? null : from.symbols,
    redraw: sticky === null,
    ...sticky,
    layer: layer && `${layer.name}:${layer.from}-${layer.to}`,
    segments: from.segmentations.map(({ name, values }) => `${name}=${values.join(",")}`).join("; "),
    metrics: from.metrics.map(asText).join("\n"),
    arm_costs: from.record.arm_costs.map(({ arm, cost }) => `${from.arms[arm].label}=${cost}`).join("\n"),
    shuffle_batch: from.shuffled?.batch,
  };
  for (const [key, input] of Object.entries(inputs)) input.value = values[key] ?? input.value;
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

/** The fields as in a file of `bandana experiment create`. */
function described(inputs) {
  const given = Object.fromEntries(SETTINGS.map((setting) => [setting.key, read(setting, inputs[setting.key])]));
  return { ...given, prior_discount: given.priors.length ? given.prior_discount : undefined };
}
