// How private a report is: presets with what they mean and how many users they take.

import { element } from "./elements.js";
import { field, number } from "./forms.js";
import { get, pause } from "./server.js";
import { count, percent, plain } from "./text.js";

/** Quiet time after a key, in milliseconds, before users are counted anew. */
const QUIET = 300;

/** The question, which sets `epsilon` in its `row`, and what asks again how many users it takes.
    `arms` tells how many arms there are. */
export function presets(epsilon, row, arms, signal) {
  const gap = number({ id: "gap", min: "0.1", max: "100", value: "5" });
  const list = element("div", { class: "presets", role: "radiogroup", "aria-label": "How private" });
  let waiting = null;
  const ask = async () => {
    waiting?.abort();
    const here = new AbortController();
    waiting = here;
    const either = AbortSignal.any([signal, here.signal]);
    await pause(QUIET, either);
    if (either.aborted) return;
    try {
      const found = await get(`/api/plan?arms=${Math.max(2, arms())}&gap=${Number(gap.value) / 100}`, either);
      show(found);
    } catch (error) {
      // The server says what is wrong with the rest when the form is sent.
    }
  };
  const show = (found) => {
    for (const preset of found) {
      const id = `preset-${preset.epsilon}`;
      if (!document.getElementById(id)) {
        const input = element("input", { type: "radio", name: "preset", id, value: preset.epsilon, onchange: () => { epsilon.value = preset.epsilon; } });
        list.append(element("div", { class: "preset" }, input, element("label", { for: id })));
      }
      document.querySelector(`label[for="${id}"]`).replaceChildren(...meaning(preset));
    }
    mark();
  };
  const mark = () => {
    for (const input of list.querySelectorAll("input")) input.checked = Number(input.value) === Number(epsilon.value);
  };
  epsilon.addEventListener("input", mark);
  gap.addEventListener("input", ask);
  const parts = [list,
    field("A difference worth finding, in percent", gap, "Between the best arm and the next, as a share of the range of a reaction. The users above are until a verdict with 95% confidence, in 9 of 10 experiments with even traffic: the learner uniform, or top-two for as few users as possible. ldp-ts earns rewards instead, and seldom gives a verdict"),
    row];
  return { parts, ask };
}

function meaning({ name, epsilon, odds_factor: factor, probability_of_truth: truth, users }) {
  return [
    element("strong", {}, `${name[0].toUpperCase()}${name.slice(1)} (epsilon ${plain(epsilon)})`),
    `: a report says the true yes or no with a probability of ${percent(truth)}. It changes the odds of a guess by a factor of ${factor.toFixed(1)} at most. `,
    element("span", { class: "users" }, users === null ? "Takes too many users to count." : `About ${count(Number(users.toPrecision(2)))} users.`),
  ];
}
