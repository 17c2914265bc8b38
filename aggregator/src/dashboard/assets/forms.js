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
