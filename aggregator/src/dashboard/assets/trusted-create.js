// A new experiment with a trusted curator.

import { element, problem } from "./elements.js";
import { check, choice, field, number } from "./forms.js";
import { get, post } from "./server.js";
import { visible } from "./text.js";

const ALGORITHMS = [
  ["adac-ucb", "adac-ucb: arms, rewards of 0 to 1"],
  ["lazy-release", "lazy-release: arms, rewards of 0 to 1; a rule of our own, without a proof of its regret"],
  ["adac-gope", "adac-gope: fixed actions, rewards of -1 to 1"],
  ["adac-oful", "adac-oful: actions that come with each recommendation, rewards of -1 to 1"],
];

/** Which fields are for which algorithms. */
const FIELDS = {
  arms: ["adac-ucb", "lazy-release"],
  beta: ["adac-ucb"],
  actions: ["adac-gope"],
  delta: ["adac-gope"],
  dimension: ["adac-oful"],
};

/** Shows the form, to those who may call. */
export async function createTrusted({ main, signal, announce, ready }) {
  await get("/api/trusted", signal);
  const inputs = {
    experiment_id: element("input", { id: "experiment_id", required: true, pattern: "[a-z0-9._\\-]{1,64}", autocomplete: "off", spellcheck: "false" }),
    rho: number({ id: "rho", required: true, min: "0.0000001", max: "1000000", value: "0.1" }),
    algorithm: choice("algorithm", ALGORITHMS),
    arms: number({ id: "arms", required: true, min: "2", max: "1024", step: "1" }),
    beta: number({ id: "beta", required: true, value: "1" }),
    actions: element("textarea", { id: "actions", required: true, rows: "4", spellcheck: "false" }),
    delta: number({ id: "delta", required: true, min: "0", max: "1", value: "0.001" }),
    dimension: number({ id: "dimension", required: true, min: "1", max: "64", step: "1" }),
  };
  const declaration = check("rewards_are_disclosed",
    "I declare that the users’ rewards reach this server, and that the app has told them so", { required: true });
  const rows = {
    arms: field("Arms", inputs.arms, "How many: 2 to 1024. They are known by their numbers, from 0 on."),
    beta: field("Beta", inputs.beta, "Exploration: 1 in the published experiments, more than 3 for the proof"),
    actions: field("Actions", inputs.actions, "One vector on each line, with commas between its numbers. Its norm is at most 1. Actions are public."),
    delta: field("Delta", inputs.delta, "Probability that the best action is eliminated"),
    dimension: field("Coordinates", inputs.dimension, "Of each action: 1 to 64"),
  };
  const trouble = element("div");
  const adapt = () => {
    for (const [name, algorithms] of Object.entries(FIELDS)) {
      const isWanted = algorithms.includes(inputs.algorithm.value);
      rows[name].hidden = !isWanted;
      // What is not seen can't be mended.
      inputs[name].disabled = !isWanted;
    }
  };
  let isBusy = false;
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    isBusy = true;
    trouble.replaceChildren();
    try {
      const made = await post("/api/trusted", described(inputs, declaration.input.checked), signal);
      announce(`${made.experiment_id} was created`);
      location.hash = `#/trusted/${made.experiment_id}`;
    } catch (error) {
      if (signal.aborted) return;
      trouble.append(problem(error.message));
      trouble.scrollIntoView({ block: "nearest" });
    }
    isBusy = false;
  };
  const form = element("form", { id: "create-trusted", onsubmit: submit, onchange: adapt },
    element("fieldset", {}, element("legend", {}, "Who sees rewards"),
      element("p", { class: "note" },
        "In this kind of experiment, users disclose their rewards to this server. It protects them from everybody else. In an ordinary ",
        element("a", { href: "#/new" }, "new experiment"), " rewards stay on devices."),
      declaration.row),
    element("fieldset", {}, element("legend", {}, "What is tried"),
      field("Name", inputs.experiment_id, "1 to 64 of the characters a-z, 0-9, “.”, “_” and “-”. Apps ask for the experiment by this name"),
      field("Algorithm", inputs.algorithm), rows.arms, rows.actions, rows.dimension, rows.beta, rows.delta),
    element("fieldset", {}, element("legend", {}, "Privacy"),
      field("Rho", inputs.rho, "What one reward costs at most. A smaller one is more private, and takes more rewards. k rewards of one person cost up to k² times as much. Apps refuse more than they agreed to.")),
    trouble,
    element("button", { type: "submit", class: "main" }, "Create"));
  adapt();
  main.replaceChildren(element("h1", { tabindex: "-1" }, "New trusted experiment"), element("section", { "aria-label": "Form" }, form));
  ready();
}

/** The fields that are for the algorithm; the server checks them. */
function described(inputs, isDeclared) {
  const body = { rewards_are_disclosed: isDeclared };
  for (const [name, input] of Object.entries(inputs)) {
    if (input.disabled || input.value === "") continue;
    if (input.type === "number") body[name] = Number(input.value);
    else if (name === "actions") body[name] = vectors(input.value);
    else body[name] = input.value;
  }
  return body;
}

/** A vector from each line. */
function vectors(text) {
  const lines = text.split("\n").map((line) => line.trim()).filter((line) => line !== "");
  return lines.map((line) => line.split(/[\s,;]+/).map((word) => {
    const value = Number(word);
    if (word === "" || !Number.isFinite(value)) throw new Mistake(`“${visible(word)}” is not a number, as actions need.`);
    return value;
  }));
}

/** What somebody has typed is wrong. */
class Mistake extends Error {}
