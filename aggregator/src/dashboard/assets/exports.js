// The files of an experiment.

import { element, problem } from "./elements.js";
import { save } from "./server.js";

const FILES = [
  ["estimates", "csv", "Estimates, CSV"],
  ["estimates", "json", "Estimates, JSON"],
  ["over-time", "csv", "Estimates over time, CSV"],
  ["over-time", "json", "Estimates over time, JSON"],
  ["tallies", "csv", "Tallies of each day, CSV"],
  ["tallies", "json", "Tallies of each day, JSON"],
];

/** The section with what can be saved. `query` is what estimates are asked with. */
export function exportLinks(id, { signal }, query) {
  const trouble = element("div");
  const button = ([what, form, title]) => element("button", {
    type: "button",
    id: `export-${what}-${form}`,
    onclick: async () => {
      trouble.replaceChildren();
      try {
        const path = `/api/experiments/${id}/export?what=${what}&format=${form}&${query()}`;
        await save(path, `${id}-${what}.${form}`, signal);
      } catch (error) {
        if (!signal.aborted) trouble.append(problem(error.message));
      }
    },
  }, title);
  return element("section", { "aria-labelledby": "export-title" },
    element("h2", { id: "export-title" }, "Export"),
    element("div", { class: "row" }, ...FILES.map(button)), trouble);
}
