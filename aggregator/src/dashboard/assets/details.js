// How an experiment is run, and who has changed it.

import { measured } from "./cells.js";
import { element, facts, table } from "./elements.js";
import { duration, plain, time, visible } from "./text.js";

/** The section on the conduct, and what brings it up to date. */
export function about() {
  const list = element("div");
  const section = element("section", { "aria-labelledby": "about-title" },
    element("h2", { id: "about-title" }, "Details"), list);
  let before = "";
  const show = (now) => {
    const signed = now.signatures.map((signature) =>
      ["Signed", `by ${signature.public_key} until ${time(signature.expires_at_unix_seconds)}`]);
    const rows = [
      ["Learner", `${now.learner}, floor weight ${plain(now.floor_weight)}`],
      ["Burn-in", now.burn_in_reports ? `${plain(now.burn_in_reports)} reports for each arm` : "none"],
      ["Holdout", now.holdout_share ? `${plain(now.holdout_share)} of the traffic` : "none"],
      ...now.record.arm_costs.map(({ arm, cost }) => ["Cost", `a choice of ${visible(now.arms[arm].label)} costs ${plain(cost)}`]),
      ...now.record.priors.map(({ arm, mean, worth }) => ["Known before",
        `${visible(now.arms[arm].label)}: a mean of ${plain(mean)}, counted by the learner alone, as ${plain(worth * now.record.prior_discount)} reports`]),
      ["Attribution window", duration(now.attribution_window_seconds)],
      ["Release delay", now.release_delay_seconds_max ? `up to ${duration(now.release_delay_seconds_max)} more` : "none"],
      ["Arms", now.sticky ? kept(now.sticky) : "drawn anew for each assignment, which can be reported each time"],
      ["Enrolled", `${plain(now.enrolment_share)} of the installations`],
      ...(now.layer ? [["Layer", `${now.layer.name}, ${plain(now.layer.from)} to ${plain(now.layer.to)}`]] : []),
      ...measured(now),
      ["Revision", String(now.revision)],
      ["Digest", element("code", {}, now.digest)],
      ...(signed.length ? signed : [["Signed", "by nobody"]]),
    ];
    const key = JSON.stringify([now.record.arm_costs, now.revision, now.digest, now.signatures]);
    if (key !== before) list.replaceChildren(facts(rows));
    before = key;
  };
  return { section, show };
}

/** How long installations keep their arm. */
function kept({ until_weight_below: weight, report_days: days }) {
  const reports = days ? `one report in each ${plain(days)} days` : "one report";
  return `kept until one weighs less than ${plain(weight)}; ${reports}`;
}

/** The section on changes, and what brings it up to date. */
export function changes() {
  const { frame, body } = table("changes", "Who has changed it, the newest change first", [
    { title: "When" }, { title: "Who" }, { title: "What" }, { title: "Exactly" },
  ]);
  const section = element("section", { "aria-labelledby": "changes-title" },
    element("h2", { id: "changes-title" }, "Changes"), frame);
  const show = (entries) => body.replaceChildren(...entries.map((entry) => element("tr", {},
    element("td", {}, time(entry.at_unix_seconds)),
    element("td", { class: "wraps" }, element("bdi", {}, visible(entry.caller))),
    element("td", {}, entry.action),
    element("td", { class: "wraps" }, element("bdi", {}, visible(entry.detail))))));
  return { section, show };
}
