// What people have written about an experiment.

import { element, facts, problem } from "./elements.js";
import { choice, field } from "./forms.js";
import { post } from "./server.js";
import { visible } from "./text.js";

/** The section, with the form that changes it, and what brings it up to date. */
export function record(id, { signal, announce }) {
  const shown = element("div", { id: "record" });
  const inputs = {
    title: element("input", { id: "record-title-text", maxlength: "200" }),
    hypothesis: element("textarea", { id: "record-hypothesis", rows: "3", maxlength: "4000" }),
    owner: element("input", { id: "record-owner", maxlength: "200" }),
    tags: element("input", { id: "record-tags", autocomplete: "off" }),
    links: element("textarea", { id: "record-links", rows: "2", spellcheck: "false" }),
    control: element("select", { id: "record-control" }),
    harm: choice("record-harm", [["stop-arm", "it gets no traffic"], ["pause", "it gets no traffic, and the experiment is paused"]]),
    decision: element("input", { id: "record-decision", maxlength: "500" }),
    arm: element("select", { id: "record-arm" }),
    reason: element("textarea", { id: "record-reason", rows: "3", maxlength: "4000" }),
  };
  const trouble = element("div");
  let latest = null;
  const submit = async (event) => {
    event.preventDefault();
    trouble.replaceChildren();
    try {
      const now = await post(`/api/experiments/${id}/record`, changed(inputs, latest.record), signal);
      announce("The record was written");
      show(now);
      editing.open = false;
      editing.querySelector("summary").focus();
    } catch (error) {
      if (!signal.aborted) trouble.append(problem(error.message));
    }
  };
  const harmField = field("When an arm is beyond a limit", inputs.harm, "A pause lasts until you resume the experiment. The same arm and metric do not pause it again");
  const form = element("form", { id: "record-form", onsubmit: submit },
    field("Title", inputs.title), field("Hypothesis", inputs.hypothesis, "What is expected, and why"),
    field("Owner", inputs.owner, "Who answers for it"),
    field("Tags", inputs.tags, "With commas between them"),
    field("Links", inputs.links, "Each on a line of its own, with https://"),
    field("Compared with", inputs.control, "The control arm, over which lifts are shown"),
    harmField, field("Decision", inputs.decision, "What was decided; it needs a reason"),
    field("Decided for", inputs.arm), field("Because", inputs.reason), trouble,
    element("button", { type: "submit", class: "main" }, "Write it down"));
  const editing = element("details", { id: "record-edit" }, element("summary", {}, "Change it"), form);
  // Nobody's typing is overwritten: the form is filled when it is opened.
  editing.addEventListener("toggle", () => { if (editing.open && latest) fill(inputs, latest); });
  const section = element("section", { "aria-labelledby": "record-title" },
    element("h2", { id: "record-title" }, "Record"), shown, editing);
  let before = "";
  const show = (now) => {
    latest = now;
    harmField.hidden = !hasLimits(now);
    const key = JSON.stringify([now.record, now.arms]);
    if (key !== before) shown.replaceChildren(described(now));
    before = key;
  };
  return { section, show };
}

/** Whether an arm can be found to do harm. */
const hasLimits = ({ metrics }) => metrics.some(({ at_most: most, at_least: least }) => most !== null || least !== null);

const labelOf = (arms, place) => visible(arms.find(({ arm }) => arm === place)?.label ?? `arm ${place}`);

/** Only addresses that lead to a page are links. */
const linked = (address) => (/^https?:\/\//.test(address)
  ? element("a", { href: address, rel: "noreferrer noopener", target: "_blank" }, visible(address))
  : visible(address));

function described({ record, arms }) {
  const { title, hypothesis, owner, tags, links, decision, control_arm: control } = record;
  const text = (words) => element("bdi", { class: "lines" }, words.split("\n").map(visible).join("\n"));
  const rows = [
    ["Title", title && text(title)], ["Hypothesis", hypothesis && text(hypothesis)], ["Owner", owner && text(owner)],
    ["Tags", tags.length && element("span", { class: "row" }, ...tags.map((tag) => element("bdi", { class: "tag" }, visible(tag))))],
    ["Links", links.length && element("ul", {}, ...links.map((link) => element("li", {}, linked(link))))],
    ["Control arm", control && text(labelOf(arms, control))],
    ["On harm", record.on_harm === "pause" && "the experiment is paused"],
    ...record.harm_pauses.map(({ arm, metric, acknowledged }) => ["Harm", element("span", {},
      text(labelOf(arms, arm)), ` was beyond the limit of ${metric}: `, acknowledged ? "resumed; the same does not pause it again" : "paused")]),
    ["Decision", decision && text(decision.decision)],
    ["Decided for", decision && decision.arm !== null && text(labelOf(arms, decision.arm))],
    ["Because", decision && text(decision.reason)],
  ].filter(([, value]) => value);
  return rows.length ? facts(rows) : element("p", { class: "note" }, "Nobody has written down yet what it is for, who answers for it, or what was decided.");
}

function fill(inputs, { record, arms }) {
  inputs.title.value = record.title;
  inputs.hypothesis.value = record.hypothesis;
  inputs.owner.value = record.owner;
  inputs.tags.value = record.tags.join(", ");
  inputs.links.value = record.links.join("\n");
  inputs.decision.value = record.decision?.decision ?? "";
  inputs.reason.value = record.decision?.reason ?? "";
  const options = () => arms.map(({ arm }) => element("option", { value: arm }, `${arm}: ${labelOf(arms, arm)}`));
  inputs.control.replaceChildren(...options());
  inputs.control.value = record.control_arm;
  inputs.harm.value = record.on_harm;
  inputs.arm.replaceChildren(element("option", { value: "" }, "no arm"), ...options());
  inputs.arm.value = record.decision?.arm ?? "";
}

/** What differs from before: what others have changed meanwhile stays. */
function changed(inputs, before) {
  const parts = (text, by) => text.split(by).map((part) => part.trim()).filter((part) => part !== "");
  const decision = inputs.decision.value.trim();
  const reason = inputs.reason.value.trim();
  const now = {
    title: inputs.title.value.trim(),
    hypothesis: inputs.hypothesis.value.trim(),
    owner: inputs.owner.value.trim(),
    tags: parts(inputs.tags.value, ","),
    links: parts(inputs.links.value, "\n"),
    control_arm: Number(inputs.control.value),
    on_harm: inputs.harm.value,
    decision: { decision, reason, arm: inputs.arm.value === "" ? null : Number(inputs.arm.value) },
  };
  const known = { ...before, decision: before.decision ?? { decision: "", reason: "", arm: null } };
  return Object.fromEntries(Object.entries(now).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(known[name])));
}
