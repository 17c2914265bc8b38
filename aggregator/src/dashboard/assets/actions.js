// Starts, pauses, resumes, stops, archives and deletes an experiment.

import { element, problem } from "./elements.js";
import { field } from "./forms.js";
import { post } from "./server.js";

const STEPS = {
  start: { title: "Start", states: ["draft"], done: "started" },
  pause: { title: "Pause", states: ["running"], done: "paused" },
  resume: { title: "Resume", states: ["paused"], done: "resumed" },
  stop: { title: "Stop…", states: ["draft", "running", "paused"], done: "stopped", isGrave: true },
  archive: { title: "Archive", states: ["stopped"], archived: false, done: "archived, and hidden from lists" },
  unarchive: { title: "Unarchive", states: ["stopped"], archived: true, done: "shown in lists again" },
  delete: { title: "Delete…", states: ["stopped"], done: "deleted", isGrave: true },
};

const PRIVATE = {
  path: "/api/experiments",
  copy: "#/new/from/",
  stopping: " ends for good: the server refuses reports that devices still hold, and you can’t start it again. To refuse reports only for now, pause it.",
  deleting: " is deleted for good, with its revisions, signatures and tallies. Its entries in the audit log stay. You can’t use its name again.",
};

/** The buttons for an experiment, and what shows those that fit a state. Of another kind are its
    path, what is said before it is stopped and deleted, and what is called after a change. */
export function actionsOf(id, { announce, signal }, { path, copy, stopping, deleting, changed } = PRIVATE) {
  const trouble = element("div");
  const buttons = new Map();
  let isBusy = false;
  const step = async (name) => {
    if (isBusy) return;
    isBusy = true;
    trouble.replaceChildren();
    try {
      const now = await post(`${path}/${id}/${name}`, null, signal);
      announce(`${id} is ${STEPS[name].done}`);
      if (now.deleted) {
        location.hash = "#/";
        return;
      }
      changed?.();
      show(now);
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
  const questions = {
    stop: confirmation(id, stopping, () => step("stop")),
    delete: deletion(id, deleting, () => step("delete")),
  };
  for (const [name, { title, isGrave }] of Object.entries(STEPS)) {
    const press = () => (questions[name] ? questions[name].showModal() : step(name));
    const look = isGrave ? "grave" : "";
    buttons.set(name, element("button",
      { type: "button", id: name, class: look, onclick: press, hidden: true }, title));
  }
  const show = (now) => {
    for (const [name, button] of buttons) {
      const { states, archived } = STEPS[name];
      button.hidden = !states.includes(now.state) || (archived ?? now.archived) !== now.archived;
    }
  };
  const group = element("div", { class: "row", role: "group", "aria-label": "Actions on the experiment" },
    ...buttons.values(), copy ? element("a", { id: "copy", class: "button", href: `${copy}${id}` }, "Copy…") : null);
  return { parts: [group, trouble, questions.stop, questions.delete], show };
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

/** Asks for the name, so that nobody deletes the wrong one. */
function deletion(id, deleting, confirmed) {
  const typed = element("input", { type: "text", id: "delete-name", autocomplete: "off", spellcheck: "false" });
  const button = element("button",
    { type: "button", id: "delete-confirmed", class: "grave", disabled: true, onclick: () => { dialog.close(); confirmed(); } },
    "Delete for good");
  typed.addEventListener("input", () => { button.disabled = typed.value !== id; });
  const dialog = element("dialog", { id: "delete-question", "aria-labelledby": "delete-title" });
  // Asked again, it is to be typed again.
  dialog.addEventListener("close", () => {
    typed.value = "";
    button.disabled = true;
  });
  dialog.append(
    element("h2", { id: "delete-title" }, "Delete the experiment?"),
    element("p", {}, element("strong", {}, id), deleting),
    field("Its name, to delete it", typed),
    element("div", { class: "row" },
      element("button", { type: "button", onclick: () => dialog.close() }, "Don’t delete it"), button));
  return dialog;
}
