// The share of each level or category among the true ones of an arm.

import { element, numberCell, shareCell, table } from "./elements.js";
import { count, estimate, percent, visible } from "./text.js";

/** A table, and what brings it up to date. It is hidden when reports are bits. */
export function symbols() {
  const { frame, body } = table("symbols", "Shares of what was true before randomized response", columns("Symbol"));
  const [caption, title] = [frame.querySelector("caption"), frame.querySelectorAll("th")[1]];
  const show = ({ estimand, arms }, confidence) => {
    frame.hidden = arms.every((arm) => arm.symbols.length === 0);
    const name = estimand === "frequencies" ? "category" : "level";
    title.textContent = name[0].toUpperCase() + name.slice(1);
    caption.textContent = `Share of each ${name} before randomized response, with bounds that hold with confidence ${confidence} for each`;
    body.replaceChildren(...rows(arms));
  };
  return { frame, show };
}

/** A table of the share of each category in a segment. */
export function sharesIn(id, caption, arms) {
  const { frame, body } = table(id, caption, columns("Category"));
  body.replaceChildren(...rows(arms));
  return frame;
}

const columns = (symbol) => [
  { title: "Label" },
  { title: symbol, isNumber: true },
  { title: "Said by", isNumber: true, hint: "reports that say it" },
  { title: "Share", isNumber: true, hint: "debiased, from all committed reports" },
  { title: "Low", isNumber: true },
  { title: "High", isNumber: true },
];

/** A row for each arm and symbol. */
function rows(arms) {
  return arms.flatMap((arm) => arm.symbols.map((symbol, place) => element("tr",
    { class: arm.retired ? "retired" : undefined },
    element("th", { scope: "row", class: "wraps" }, element("bdi", {}, visible(arm.label))),
    numberCell(place, symbol.meaning ? `${place}: ${visible(symbol.meaning)}` : String(place)),
    numberCell(symbol.count, count(symbol.count)),
    symbol.frequency === null ? numberCell(null)
      : shareCell(symbol.frequency, percent(Math.min(1, Math.max(0, symbol.frequency)))),
    numberCell(symbol.low, estimate(symbol.low)),
    numberCell(symbol.high, estimate(symbol.high)))));
}
