// By how much each arm is above the control arm.

import { element, numberCell, table } from "./elements.js";
import { relative, visible } from "./text.js";

/** The choice of the control arm, the table, and what brings both up to date. */
export function lifts() {
  const { frame, body } = table("lifts", "Lifts over the control arm", [
    { title: "Arm", isNumber: true },
    { title: "Label" },
    { title: "Lift", isNumber: true, hint: "difference of the estimates" },
    { title: "Low", isNumber: true },
    { title: "High", isNumber: true },
    { title: "Relative", isNumber: true, hint: "as a share of the control arm's mean among the users of both" },
    { title: "from", isNumber: true },
    { title: "to", isNumber: true },
  ]);
  const caption = frame.querySelector("caption");
  const control = element("select", { id: "control" });
  const row = element("div", { class: "row" }, element("label", { for: "control" }, "Compared with"), control);
  let chosen = null;
  let known = "";
  control.addEventListener("change", () => { chosen = control.value; });
  const show = (estimates, unit, confidence) => {
    const isRanked = estimates.estimand !== "frequencies";
    row.hidden = !isRanked;
    frame.hidden = !isRanked || estimates.lifts.length === 0;
    const labels = new Map(estimates.arms.map((arm) => [arm.arm, visible(arm.label)]));
    const all = JSON.stringify([...labels]);
    if (all !== known) {
      control.replaceChildren(...[...labels].map(([arm, label]) => element("option", { value: arm }, `${arm}: ${label}`)));
      known = all;
    }
    // Only a choice is kept; what the record says can change.
    control.value = chosen ?? estimates.control_arm;
    caption.textContent = `Lifts over ${labels.get(estimates.control_arm)}, with bounds of ${confidence} that hold for all pairs of arms at all times at once`;
    body.replaceChildren(...estimates.lifts.map((lift) => element("tr", {},
      numberCell(lift.arm, String(lift.arm)),
      element("th", { scope: "row", class: "wraps" }, element("bdi", {}, labels.get(lift.arm))),
      numberCell(lift.difference, unit.difference(lift.difference)),
      numberCell(lift.low, unit.difference(lift.low)),
      numberCell(lift.high, unit.difference(lift.high)),
      ...[lift.relative, lift.relative_low, lift.relative_high].map((share) =>
        numberCell(share, share === null ? "" : relative(share))))));
  };
  return { parts: [row, frame], control, show, query: () => (chosen === null ? "" : `&control=${chosen}`) };
}
