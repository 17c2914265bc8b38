// Data sets, with what is left of their budgets.

import { element, numberCell, shareCell, table } from "./elements.js";
import { get } from "./server.js";
import { count, percent, time, visible } from "./text.js";

/** Budgets are told in billionths. */
const NANOS = 1e9;

/** How budgets are called. */
const MEASURES = { epsilon: "ε", rho: "ρ" };

/** Shows the list. */
export async function dataSets({ main, signal, ready }) {
  const all = [];
  let next = "";
  do {
    const page = await get(`/api/data-sets${next && `?page_token=${next}`}`, signal);
    all.push(...page.data_sets);
    next = page.next_page_token;
  } while (next);
  const { frame, body } = table("data-sets", "Data sets, by name, with their budgets of privacy loss", [
    { title: "Data set" }, { title: "Rows", isNumber: true }, { title: "Budget", isNumber: true },
    { title: "Spent", isNumber: true }, { title: "Left", isNumber: true }, { title: "Of the budget", isNumber: true },
    { title: "Columns" }, { title: "File" }, { title: "Registered" },
  ]);
  body.replaceChildren(...all.map(row));
  const none = element("p", {}, "There are no data sets. bandana query register registers one, with its budget.");
  frame.hidden = all.length === 0;
  none.hidden = all.length > 0;
  main.replaceChildren(element("h1", { tabindex: "-1", id: "data-sets-title" }, "Data sets"),
    element("section", { "aria-labelledby": "data-sets-title" },
      element("p", { class: "note" }, "Every question about rows costs a part of the budget, whoever asks. A budget never grows again. Ask questions and list payments with bandana query."),
      none, frame));
  ready();
}

function row({ name, file, rows, rows_of_each_person: each, columns, measure, budget_nanos: budget, spent_nanos: spent, unix_seconds: at }) {
  const left = Math.max(0, budget - spent);
  const share = budget > 0 ? left / budget : 0;
  const amount = (nanos) => `${MEASURES[measure] ?? measure} ${nanos / NANOS}`;
  return element("tr", {},
    element("th", { scope: "row", class: "wraps" }, element("bdi", {}, visible(name))),
    numberCell(rows, each ? `${count(rows / each)} people × ${each}` : count(rows)),
    numberCell(budget, amount(budget)),
    numberCell(spent, amount(spent)),
    numberCell(left, amount(left)),
    shareCell(share, percent(share)),
    element("td", { class: "wraps" }, element("bdi", {}, visible(columns.join(", ")))),
    element("td", { class: "wraps" }, element("bdi", {}, visible(file))),
    element("td", {}, time(at)));
}
