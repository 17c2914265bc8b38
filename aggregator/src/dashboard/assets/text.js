// Numbers, times and names as people read them.

const counts = new Intl.NumberFormat("en");

/** A whole number. */
export const count = (value) => counts.format(value);

/** An estimate, to four places. */
export const estimate = (value) => value.toFixed(4);

/** The same, with its sign. */
const signed = (value, places) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(places)}`;

/** How estimates of an experiment and differences of them are written: where a reward is 0 or 1,
    its mean is a rate, in percent. */
export function units({ rewards, estimand }) {
  const isRate = estimand === "mean_reward" && rewards.kind === "binary" && rewards.low === 0 && rewards.high === 1;
  return isRate ? {
    isRate,
    value: (mean) => `${(100 * mean).toFixed(2)}%`,
    size: (difference) => `${(100 * difference).toFixed(2)} points`,
    difference: (difference) => `${signed(100 * difference, 2)} points`,
  } : { isRate, value: estimate, size: estimate, difference: (difference) => signed(difference, 4) };
}

/** A change as a share of what there was, in percent. */
export const relative = (share) => `${signed(100 * share, 1)}%`;

/** A share of one in percent. */
export function percent(share) {
  if (share > 0 && share < 0.001) return "<0.1%";
  if (share < 1 && share > 0.999) return ">99.9%";
  return `${(100 * share).toFixed(1)}%`;
}

/** A number without needless places. */
export const plain = (value) => String(Number(value.toPrecision(6)));

/** The date of a day since 1970, by UTC. */
export const date = (day) => new Date(day * 86_400_000).toISOString().slice(0, 10);

/** A time, by UTC. */
export const time = (seconds) =>
  `${new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** Text of others, without what is not seen or would change how the rest is shown. */
export const visible = (text) =>
  text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => `\\u{${c.codePointAt(0).toString(16)}}`);

/** The same, of bounded length. */
export function short(text, most) {
  const points = [...visible(text)];
  return points.length <= most ? points.join("") : `${points.slice(0, most - 1).join("")}…`;
}
