// Charts, drawn by uPlot. Each has a table beside it that says the same.

/* global uPlot */

import { date, percent, plain, short } from "./text.js";

/** Most arms with an interval of their own. */
export const ARMS_SHOWN = 30;

/** Most arms with a colour of their own; the others share one. */
export const COLOURS = 8;

/** Letters of a label beside an axis. */
const LABEL = 22;

const DAY = 86_400;

/** The colour of the arm that comes so many-th among those that have one. */
export const colourOf = (place) => `var(--arm-${place < COLOURS ? place : "other"})`;

function colours() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return {
    ink: value("--ink"), soft: value("--soft"), line: value("--line"), card: value("--card"),
    arm: (place) => value(`--arm-${place < COLOURS ? place : "other"}`),
  };
}

const font = (size) => `${size}px system-ui, "DejaVu Sans", sans-serif`;

/** Draws in an element, again whenever its width or the colours change. `describe` gives
    the options of uPlot, its data and a description for what is shown. */
export function chart(id, describe, signal) {
  const place = document.createElement("div");
  place.id = id;
  place.className = "chart";
  place.setAttribute("role", "img");
  let view = null;
  let width = 0;
  const draw = () => {
    if (view === null || width === 0) return;
    const { options, data, description } = describe(view, colours(), width);
    place.plot?.destroy();
    place.plot = new uPlot({ width, legend: { show: false }, cursor: { show: false }, ...options }, data, place);
    place.setAttribute("aria-label", description);
  };
  const sizes = new ResizeObserver(() => {
    const now = Math.floor(place.clientWidth);
    if (now === width) return;
    width = now;
    // Not while sizes are being told: drawing changes them.
    requestAnimationFrame(draw);
  });
  sizes.observe(place);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", draw, { signal });
  signal.addEventListener("abort", () => { sizes.disconnect(); place.plot?.destroy(); });
  return { place, show: (next) => { view = next; draw(); } };
}

const hidden = { paths: () => null, points: { show: false } };

/** Estimates with their intervals, an arm a line. */
export function intervals({ arms, best, isRate }, { ink, soft, line, arm: colour }, width) {
  const most = width < 500 ? 12 : LABEL;
  const shown = (value) => (isRate ? `${plain(100 * value)}%` : plain(value));
  const labels = arms.map(({ label }) => short(label, most));
  const data = [
    arms.map((_, place) => place),
    arms.map(({ estimate }) => estimate),
    arms.map(({ low }) => low),
    arms.map(({ high }) => high),
  ];
  const stroke = (context, color, thick, from, to) => {
    context.beginPath();
    context.strokeStyle = color;
    context.lineWidth = thick * devicePixelRatio;
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  };
  const draw = (plot) => {
    const { ctx: context, bbox } = plot;
    const cap = 5 * devicePixelRatio;
    context.save();
    context.beginPath();
    context.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    context.clip();
    arms.forEach(({ estimate, low, high, arm, shift, order }, place) => {
      const y = plot.valToPos(place, "x", true);
      const x = (value) => plot.valToPos(value, "y", true);
      const color = colour(order);
      if (low === null) return;
      stroke(context, color, arm === best ? 4 : 2, [x(low), y], [x(high), y]);
      for (const end of [low, high]) stroke(context, color, 2, [x(end), y - cap], [x(end), y + cap]);
      if (estimate === null) return;
      if (shift > 0) {
        context.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
        stroke(context, soft, 1.5, [x(estimate - shift), y + 2 * cap], [x(estimate + shift), y + 2 * cap]);
        context.setLineDash([]);
      }
      context.beginPath();
      context.fillStyle = color;
      context.arc(x(estimate), y, 5 * devicePixelRatio, 0, 2 * Math.PI);
      context.fill();
    });
    context.restore();
  };
  const axis = { stroke: soft, font: font(12) };
  const options = {
    height: 34 * arms.length + 50,
    scales: {
      x: { time: false, ori: 1, dir: -1, range: [-0.6, arms.length - 0.4] },
      y: { ori: 0, dir: 1, range: (_, low, high) => padded(low, high) },
    },
    axes: [
      { ...axis, stroke: ink, side: 3, size: most * 7.5, splits: () => data[0], values: () => labels,
        grid: { show: false }, ticks: { show: false }, gap: 6 },
      { ...axis, side: 2, size: 36, ...(isRate ? { values: (_, marks) => marks.map(shown) } : {}), grid: { stroke: line, width: 1 }, ticks: { stroke: line } },
    ],
    series: [{}, hidden, hidden, hidden],
    hooks: { draw: [draw] },
  };
  const words = arms.map(({ label, estimate, low, high }) => estimate === null
    ? `${short(label, LABEL)}: no reports`
    : `${short(label, LABEL)}: ${shown(estimate)}, between ${shown(low)} and ${shown(high)}`);
  return { options, data, description: `Estimates with intervals. ${words.join("; ")}.` };
}

/** Released means with the standard deviation of their noise, an arm a line. */
export function noisyMeans({ means }, colours, width) {
  const arms = means.map(({ arm, mean, noise_deviation: noise }) => ({
    arm, order: arm, label: `arm ${arm}`, shift: 0, estimate: mean,
    low: mean === null ? null : mean - (noise ?? 0), high: mean === null ? null : mean + (noise ?? 0),
  }));
  const { options, data } = intervals({ arms, best: null }, colours, width);
  const words = means.map(({ arm, mean, noise_deviation: noise }) => {
    if (mean === null) return `arm ${arm}: nothing released`;
    return `arm ${arm}: ${plain(mean)}${noise === null ? "" : `, noise of deviation ${plain(noise)}`}`;
  });
  return { options, data, description: `Released means with their noise. ${words.join("; ")}.` };
}

function padded(low, high) {
  const margin = 0.04 * (high - low || 1);
  return [low - margin, high + margin];
}

/** Reports of each day, the arms on top of each other. `stacks` are from the lowest. */
export function traffic({ days, stacks }, { soft, line, card, arm: colour }, width) {
  let sums = days.map(() => 0);
  const towers = stacks.map(({ reports }) => (sums = sums.map((sum, day) => sum + reports[day])));
  const [first, last] = [days[0] * DAY, days.at(-1) * DAY];
  const from = Math.min(first, last - 6 * DAY);
  const slots = (last - from) / DAY + 1;
  const slot = Math.max(1, Math.min(48, (0.7 * (width - 80)) / slots));
  const bars = uPlot.paths.bars({ size: [0.8, slot] });
  // The highest is drawn first, and the lower ones over it.
  const order = stacks.map((_, place) => stacks.length - 1 - place);
  const data = [days.map((day) => day * DAY), ...order.map((place) => towers[place])];
  const series = order.map((place) => ({
    paths: bars, points: { show: false }, width: slot > 6 ? 1 : 0,
    fill: colour(stacks[place].order), stroke: card,
  }));
  const axis = { stroke: soft, font: font(12), grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
  const options = {
    height: 220,
    scales: {
      x: { time: true, range: [from - 0.6 * DAY, last + 0.6 * DAY] },
      y: { range: (_, __, high) => [0, 1.05 * (high || 1)] },
    },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    axes: [
      { ...axis, grid: { show: false }, incrs: [1, 2, 7, 14, 28].map((n) => n * DAY), space: 70,
        values: (_, splits) => splits.map((seconds) => date(Math.round(seconds / DAY)).slice(5)) },
      { ...axis, size: 64 },
    ],
    series: [{}, ...series],
  };
  const total = sums.reduce((sum, reports) => sum + reports, 0);
  const description = `Reports of ${days.length} day${days.length === 1 ? "" : "s"} from `
    + `${date(days[0])} to ${date(days.at(-1))}, ${total} in all, by arm.`;
  return { options, data, description };
}

/** Estimates at the end of each day, an arm a line in the band of its intervals. */
export function overTime({ days, lines, isRate }, { soft, line, arm: colour }, width) {
  const at = days.map((day) => Date.parse(`${day}T00:00:00Z`) / 1000);
  const shown = (value) => (isRate ? `${plain(Number((100 * value).toFixed(2)))}%` : plain(Number(value.toFixed(4))));
  // All bands are drawn before the lines, which none of them covers.
  const data = [at, ...lines.flatMap(({ low, high }) => [low, high]), ...lines.map(({ estimate }) => estimate)];
  const points = { show: days.length < 15, size: 7 };
  const edges = lines.flatMap(({ order }) => {
    const edge = { stroke: `${colour(order)}55`, width: 1, points: { show: days.length < 2, size: 5, fill: colour(order) } };
    return [edge, edge];
  });
  const means = lines.map(({ order }) => ({ stroke: colour(order), width: 2, points: { ...points, fill: colour(order) } }));
  const axis = { stroke: soft, font: font(12), grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
  const [first, last] = [at[0], at.at(-1)];
  const options = {
    height: width < 500 ? 220 : 280,
    scales: {
      x: { time: true, range: [Math.min(first, last - 6 * DAY) - 0.3 * DAY, last + 0.3 * DAY] },
      y: { range: (_, low, high) => padded(low, high) },
    },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    axes: [
      { ...axis, grid: { show: false }, incrs: [1, 2, 7, 14, 28, 91, 364].map((n) => n * DAY), space: 70,
        values: (_, splits) => splits.map((seconds) => date(Math.round(seconds / DAY)).slice(5)) },
      { ...axis, size: 64, ...(isRate ? { values: (_, marks) => marks.map(shown) } : {}) },
    ],
    bands: lines.map(({ order }, place) => ({ series: [2 * place + 2, 2 * place + 1], fill: `${colour(order)}1f` })),
    series: [{}, ...edges, ...means],
  };
  const words = lines.map(({ label, estimate, low, high }) => {
    const from = estimate.findIndex((value) => value !== null);
    const began = from < estimate.length - 1 ? `${shown(estimate[from])} on ${days[from]}, then ` : "";
    return `${short(label, LABEL)}: ${began}${shown(estimate.at(-1))} on ${days.at(-1)}, between ${shown(low.at(-1))} and ${shown(high.at(-1))}`;
  });
  return { options, data, description: `Estimates at the end of each day. ${words.join("; ")}.` };
}

/** How likely a one is, by the reward. */
export function likelihood({ curve }, { soft, line, arm: colour }) {
  const data = [curve.map(({ reward }) => reward), curve.map((point) => point.probability_of_one)];
  const axis = { stroke: soft, font: font(12), grid: { stroke: line, width: 1 }, ticks: { stroke: line } };
  const [low, high] = [curve[0], curve.at(-1)];
  // Between two rewards there is nothing.
  const isBinary = curve.length === 2;
  const dots = { stroke: colour(0), width: 2, points: { show: true, size: 9, fill: colour(0) } };
  const options = {
    height: 200,
    scales: { x: { time: false }, y: { range: [0, 1] } },
    axes: [
      { ...axis, label: "reward", labelFont: font(12), labelSize: 20 },
      { ...axis, label: "probability of a 1", labelFont: font(12), labelSize: 20 },
    ],
    series: [{}, isBinary ? { ...dots, paths: () => null } : { ...dots, points: { show: false } }],
  };
  const description = `The probability that the bit is 1 goes from ${percent(low.probability_of_one)} `
    + `for a reward of ${plain(low.reward)} to ${percent(high.probability_of_one)} for ${plain(high.reward)}.`;
  return { options, data, description };
}
