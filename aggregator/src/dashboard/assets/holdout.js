// What learning has earned, beside the installations that are held out.

import { element } from "./elements.js";
import { count, estimate, percent } from "./text.js";

/** A sentence, if some are held out. */
export function earned({ holdout = null }) {
  if (holdout === null) return [];
  const { share, reports, reports_of_others: others } = holdout;
  if (holdout.earned === null) {
    return [element("p", {}, `${percent(share)} of the installations are held out. There are reports of ${count(reports)} of `,
      `them and of ${count(others)} others: too few to tell what learning has earned.`)];
  }
  return [element("p", {}, element("strong", {}, "Learning has earned "),
    `${estimate(holdout.earned)} for each assignment (${estimate(holdout.low)} to ${estimate(holdout.high)}): `,
    `${estimate(holdout.mean_of_others)} in ${count(others)} reports, beside ${estimate(holdout.mean)} in ${count(reports)} of `,
    `the ${percent(share)} of the installations that are held out and get all arms evenly.`)];
}
