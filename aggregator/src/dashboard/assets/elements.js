// Elements of the page. What others have written gets into it as text alone.

/** An element with these attributes, listeners (`on...`) and children (elements or text). */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) {
      made.addEventListener(key.slice(2), value);
    } else if (value === true) {
      made.setAttribute(key, "");
    } else if (value !== false && value !== undefined && value !== null) {
      made.setAttribute(key, value);
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** A cell with a number: the exact one for programs, a short one for people. */
export function numberCell(value, shown, ...more) {
  const cell = element("td", { class: "number" });
  cell.append(value === null ? "–" : element("data", { value: String(value) }, shown), ...more);
  return cell;
}

/** A cell with a share of one, and a bar as long. An estimate of a share may lie beyond 0 and 1. */
export function shareCell(share, shown) {
  const bar = element("span", { class: "bar" });
  bar.style.width = `${100 * Math.min(1, Math.max(0, share))}%`;
  const data = element("data", { value: String(share) }, shown);
  return element("td", { class: "number" }, element("span", { class: "track" }, data,
    element("span", { class: "bars", "aria-hidden": "true" }, bar)));
}

/** A table that can be scrolled sideways, by keyboard too. */
export function table(id, caption, columns) {
  const head = columns.map(({ title, isNumber, hint }) =>
    element("th", { scope: "col", class: isNumber ? "number" : undefined, title: hint }, title));
  const body = element("tbody");
  const made = element("table", { id },
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head)), body);
  const frame = element("div", { class: "scrolls", tabindex: "0", role: "region", "aria-label": caption }, made);
  return { frame, body };
}

/** Names and what they stand for. */
export function facts(rows) {
  return element("dl", {}, ...rows.flatMap(([name, ...value]) =>
    [element("dt", {}, name), element("dd", {}, ...value)]));
}

/** A message that something went wrong, which is read out at once. */
export function problem(message) {
  return element("p", { class: "problem", role: "alert" }, message);
}
