// How an experiment is run, and who has changed it.

import { element, facts, table } from "./elements.js";
import { time, visible } from "./text.js";

/** The section on the conduct, and what brings it up to date. */
export function about() {
  const list = element("div");
  const section = element("section", { "aria-labelledby": "about-title" },
    element("h2", { id: "about-title" }, "Details"), list);
  let before = "";
  const show = (rows) => {
    const key = JSON.stringify(rows);
    if (key !== before) list.replaceChildren(facts(rows));
    before = key;
  };
  return { section, show };
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
