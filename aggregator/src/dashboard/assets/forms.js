// What forms are made of.

import { element } from "./elements.js";

/** A number. */
export const number = (attributes) => element("input", { type: "number", step: "any", class: "short", ...attributes });

/** One of several. */
export const choice = (id, options) => element("select", { id, name: id },
  ...options.map(([value, title]) => element("option", { value }, title)));

/** An input with its label, and what there is to say of it. */
export function field(label, input, note) {
  const noteId = `${input.id}-note`;
  if (note) input.setAttribute("aria-describedby", noteId);
  return element("div", { class: "field" }, element("label", { for: input.id }, label), input,
    note ? element("p", { class: "note", id: noteId }, note) : null);
}

/** Something to agree to. */
export function check(id, label, attributes = {}) {
  const input = element("input", { type: "checkbox", id, name: id, ...attributes });
  return { input, row: element("div", { class: "field check" }, input, element("label", { for: id }, label)) };
}

/** The input of a setting that the server lists. */
export function asked({ key, kind, attributes, options }) {
  if (kind === "choice") return choice(key, options);
  const pairs = attributes.split(" ").filter(Boolean).map((text) => text.split("="));
  const all = { id: key, ...Object.fromEntries(pairs.map(([name, value = true]) => [name, value])) };
  if (kind === "number") return number(all);
  return element(kind === "lines" ? "textarea" : "input", { autocomplete: "off", spellcheck: "false", ...all });
}

/** What was put in, as a file of settings has it; undefined for nothing. */
export function read({ kind }, input) {
  const text = input.value.trim();
  if (kind === "lines") return lines(input);
  if (kind === "list") return lines(input, ";");
  if (input.disabled || text === "") return undefined;
  if (kind === "number") return Number(text);
  return kind === "choice" && ["true", "false"].includes(text) ? text === "true" : text;
}

/** The items of a list that are not empty. */
export const lines = (input, between = "\n") => input.value.split(between).map((item) => item.trim()).filter(Boolean);
