// How arms are named and coloured.

import { COLOURS, colourOf } from "./charts.js";
import { element } from "./elements.js";
import { visible } from "./text.js";

/** For each arm its place by reports, which is that of its colour. */
export function places(all) {
  const sorted = [...all].sort((a, b) => b.reports - a.reports || a.arm - b.arm);
  if (all.length <= COLOURS) return new Map(all.map((arm) => [arm.arm, arm.arm]));
  return new Map(sorted.map((arm, place) => [arm.arm, place]));
}

/** Labels are text of others: shown apart from ours, whatever direction they have. */
export const name = (label, order) => {
  const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
  swatch.style.background = colourOf(order);
  return [swatch, element("bdi", {}, visible(label))];
};
