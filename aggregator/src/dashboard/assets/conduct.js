// Starts, pauses, resumes and stops an experiment.

import { element, problem } from "./elements.js";
import { post } from "./server.js";

const STEPS = {
  start: { title: "Start", states: ["draft"], done: "started" },
  pause: { title: "Pause", states: ["running"], done: "paused" },
  resume: { title: "Resume", states: ["paused"], done: "resumed" },
  stop: { title: "Stop…", states: ["draft", "running", "paused"], done: "stopped" },
};

const PRIVATE = {
  path: "/api/experiments",
  stopping: " ends: reports that devices still hold are refused, and nothing starts it again. To refuse them for now, pause it.",
};

/** The buttons for an experiment, and what shows those that fit a state. Of another kind are its
    path, what is said before it is stopped, and what is called after a change. */
export function conduct(id, { announce, signal }, { path, stopping, changed } = PRIVATE) {
  const trouble = element("div");
  const buttons = new Map();
  let isBusy = false;
  const step = async (name) => {
    if (isBusy) return;
    isBusy = true;
    trouble.replaceChildren();
    try {
      const { state } = await post(`${path}/${id}/${name}`, null, signal);
      changed?.();
      show(state);
      announce(`${id} is ${STEPS[name].done}`);
    } catch (error) {
      if (signal.aborted) return;
      trouble.append(problem(error.message));
    }
    isBusy = false;
    // The button that was pressed may be gone, and the place of the keyboard with it.
    const active = document.activeElement ?? document.body;
    if (active === document.body || active.hidden) {
      const next = [...buttons.values()].find((button) => !button.hidden);
      (next ?? document.querySelector("h1")).focus();
    }
  };
  const question = confirmation(id, stopping, () => step("stop"));
  for (const [name, { title }] of Object.entries(STEPS)) {
    const press = () => (name === "stop" ? question.showModal() : step(name));
    const look = name === "stop" ? "grave" : "";
    buttons.set(name, element("button",
      { type: "button", id: name, class: look, onclick: press, hidden: true }, title));
  }
  const show = (state) => {
    for (const [name, button] of buttons) button.hidden = !STEPS[name].states.includes(state);
  };
  const group = element("div", { class: "row", role: "group", "aria-label": "Conduct of the experiment" },
    ...buttons.values());
  return { parts: [group, trouble, question], show };
}

function confirmation(id, stopping, confirmed) {
  const dialog = element("dialog", { id: "stop-question", "aria-labelledby": "stop-title" });
  dialog.append(
    element("h2", { id: "stop-title" }, "Stop the experiment for good?"),
    element("p", {}, element("strong", {}, id), stopping),
    element("div", { class: "row" },
      element("button", { type: "button", onclick: () => dialog.close() }, "Don’t stop it"),
      element("button",
        { type: "button", id: "stop-confirmed", class: "grave", onclick: () => { dialog.close(); confirmed(); } },
        "Stop for good")));
  return dialog;
}
