// Which curves stand in which panel: the metrics of runs in, panels by section out. A metric that no panel knows gets
// one of its own, so that nothing that was measured is missing.

import { DASHES } from "./chart.js";
import { el, known, spelled } from "./dom.js";

/** @import { Series } from "./chart.js" */
/** @import { Metrics, Run } from "./data.js" */
/** @typedef {{ key: string, label: string }} Curve */
/**
 * A chart that runs may have; `without` says that it would show nothing new, `exact` that no curve is smoothed, `moving`
 * that curves with nothing but zeros are left out.
 * @typedef {{
 *   title: string, unit: string, curves: Curve[], range?: [number, number], exact?: boolean, moving?: boolean,
 *   without?: (curves: Curve[], metrics: Metrics[]) => boolean
 * }} Panel
 */

// Okabe and Ito's colours, which people who see colours otherwise tell apart too; two of them differ on a dark page.
const COLOURS = [
  "var(--c0)",
  "var(--c1)",
  "var(--c2)",
  "var(--c3)",
  "var(--c4)",
  "var(--c5)",
  "var(--c6)",
  "var(--c7)",
];
const MIXED = ["", "55%, var(--paper)", "60%, var(--ink)"]; // with what, once all were given

/** @param {number} at */
const colourOf = (at) => {
  const mixed = MIXED[Math.floor(at / COLOURS.length) % MIXED.length],
    own = COLOURS[at % COLOURS.length];
  return mixed ? `color-mix(in srgb, ${own} ${mixed})` : own;
};
export const HELD_OUT = "held_out/accuracy";

/** @param {string} key @param {string} label */
const one = (key, label) => ({ key, label });
/** @param {string[]} keys @param {RegExp} pattern @param {string} [label] */
const every = (keys, pattern, label) =>
  keys.flatMap((key) => {
    const found = pattern.exec(key);
    return found ? [one(key, label ?? found[1])] : [];
  });

/** @type {[string, (keys: string[]) => Panel[]][]} */
const SECTIONS = [
  [
    "Outcome",
    (keys) => [
      {
        title: "Reward",
        unit: "weighted total",
        curves: [one("reward", "total"), ...every(keys, /^env\/(.+)\/reward$/)],
      },
      {
        title: "Accuracy",
        unit: "share of right answers",
        range: [0, 1],
        curves: [
          one("accuracy", "sampled"),
          one(HELD_OUT, "held out, 95% interval"),
          ...every(keys, /^env\/(.+)\/accuracy$/).filter(({ key }) => !key.endsWith("/held_out/accuracy")),
          ...every(keys, /^env\/(.+)\/held_out\/accuracy$/).map(({ key, label }) => one(key, `${label}, held out`)),
        ],
      },
      {
        title: "Each reward",
        unit: "mean score",
        curves: every(keys, /^rewards\/(.+)\/mean$/),
        without: (curves) => curves.length < 2, // it is the total
      },
    ],
  ],
  [
    "Signal",
    (keys) => [
      {
        title: "Groups without signal",
        unit: "share",
        range: [0, 1],
        curves: [one("frac_reward_zero_std", "all rewards equal")],
      },
      {
        title: "Spread of rewards",
        unit: "standard deviation",
        curves: [one("reward_std", "in a group"), ...every(keys, /^rewards\/(.+)\/std$/)],
      },
      {
        title: "Failures",
        unit: "share of rollouts",
        curves: [
          ...every(keys, /^rewards\/(.+)\/failure$/),
          one("turns/failed", "environment"),
          ...every(keys, /^env\/(.+)\/failed$/).map(({ key, label }) => one(key, `${label}, environment`)),
        ],
        exact: true,
      },
      {
        title: "Abstentions",
        unit: "share of rollouts",
        curves: every(keys, /^rewards\/(.+)\/abstain$/),
        exact: true,
      },
      {
        title: "What decides",
        unit: "share of the differences within groups",
        range: [0, 1],
        curves: every(keys, /^rewards\/(.+)\/of_differences$/),
        without: (curves) => curves.length < 2,
      },
      { title: "Lowest scores", unit: "share of rollouts", curves: every(keys, /^rewards\/(.+)\/lowest$/) },
      {
        title: "Time of lowest scores",
        unit: "times that of others",
        curves: every(keys, /^time\/lowest\/(.+)$/),
      },
      {
        title: "Tokens without signal",
        unit: "share of those sampled",
        curves: [one("sampling/taught_nothing", "without signal")],
      },
    ],
  ],
  [
    "Completions",
    (keys) => [
      {
        title: "Length",
        unit: "tokens",
        curves: [
          one("completions/mean_length", "mean"),
          one("completions/min_length", "shortest"),
          one("completions/max_length", "longest"),
          ...every(keys, /^env\/(.+)\/length$/),
        ],
      },
      {
        title: "Length of those that ended",
        unit: "tokens",
        curves: [
          one("completions/mean_terminated_length", "mean"),
          one("completions/min_terminated_length", "shortest"),
          one("completions/max_terminated_length", "longest"),
        ],
        without: (_, metrics) => !metrics.some((own) => own["completions/clipped_ratio"]?.some((share) => share)),
      },
      { title: "Cut at the limit", unit: "share", curves: [one("completions/clipped_ratio", "cut")] },
      {
        title: "Turns",
        unit: "a rollout",
        curves: [one("turns/mean", "mean"), one("turns/most", "most"), ...every(keys, /^env\/(.+)\/turns$/)],
      },
      {
        title: "Tool calls",
        unit: "",
        curves: [one("tools/calls", "calls"), one("tools/callers", "rollouts that call")],
      },
      { title: "Share of each environment", unit: "of the rollouts", curves: every(keys, /^env\/(.+)\/share$/) },
    ],
  ],
  [
    "Agents",
    (keys) => [
      {
        title: "Calls",
        unit: "an episode",
        curves: [one("agent/calls", "calls"), one("agent/undelivered", "not delivered")],
        moving: true,
      },
      {
        title: "Beginnings of conversations",
        unit: "an episode, by reason",
        curves: every(keys, /^agent\/roots\/(.+)$/),
        moving: true,
      },
      { title: "Rows", unit: "a rollout", curves: [one("rows/mean", "mean"), one("rows/most", "most")] },
      {
        title: "Tokens of agents",
        unit: "an episode",
        curves: [one("agent/tokens_trained", "trained"), one("agent/tokens_untrained", "not trained")],
      },
      {
        title: "Seconds of agents",
        unit: "an episode",
        curves: [one("agent/model_seconds", "waiting for the policy"), one("agent/own_seconds", "their own")],
      },
      {
        title: "Ends of agents",
        unit: "share of episodes",
        curves: [
          one("agent/exits", "exit status not 0"),
          one("agent/timed_out", "out of time"),
          one("agent/refused", "a request refused"),
          one("agent/failed", "failed"),
        ],
        exact: true,
        moving: true,
      },
    ],
  ],
  [
    "Sessions",
    () => [
      { title: "Episodes that are paid 0", unit: "share", curves: [one("sessions/zeros", "paid 0")] },
      { title: "Commands and graders", unit: "seconds an episode", curves: [one("time/sessions", "seconds")] },
      { title: "Load of the machine", unit: "per core", curves: [one("time/load", "load")] },
    ],
  ],
  [
    "Policy",
    (keys) => [
      { title: "Entropy", unit: "nats a token", curves: [one("entropy", "entropy")] },
      { title: "Distance to the reference", unit: "nats", curves: [one("kl", "KL")] },
      { title: "Loss", unit: "", curves: [one("loss", "loss")] },
      { title: "Gradient", unit: "norm before clipping", curves: [one("grad_norm", "norm")] },
      { title: "Learning rate", unit: "", curves: [one("learning_rate", "rate")], exact: true },
      { title: "Clipped ratios", unit: "share of tokens", curves: every(keys, /^clip_ratio\/(.+?)(?:_mean)?$/) },
      {
        title: "Sampling against training",
        unit: "nats a token",
        curves: every(keys, /^sampling\/sampling_logp_difference\/(.+)$/),
      },
    ],
  ],
  [
    "Time",
    (keys) => [
      {
        title: "Seconds of a step",
        unit: "by part",
        curves: [
          ...["step", "generate", "update", "score"].map((part) => one(`time/${part}`, part)),
          ...every(keys, /^time\/(?!(?:tokens_per_second|score_queue|step|generate|update|score)$|rewards\/)(.+)$/).map(
            ({ key, label }) => one(key, label.replaceAll("_", " ")),
          ),
        ],
      },
      { title: "Seconds of rewards", unit: "all calls of a step", curves: every(keys, /^time\/rewards\/(.+)$/) },
      { title: "Sampled tokens", unit: "a second of sampling", curves: [one("time/tokens_per_second", "tokens")] },
      { title: "Waiting for scores", unit: "completions", curves: [one("time/score_queue", "not scored yet")] },
      { title: "Padding of the update", unit: "share of positions", curves: [one("update/padding", "padding")] },
    ],
  ],
  [
    "Weights on their way to the sampler",
    (keys) => [
      { title: "Staleness", unit: "steps", curves: [one("sampling/staleness", "behind")] },
      { title: "Seconds", unit: "", curves: every(keys, /^sync\/(.*seconds)$/) },
      { title: "Bytes", unit: "", curves: every(keys, /^sync\/(.*bytes)$/) },
    ],
  ],
  [
    "Canaries",
    (keys) =>
      [...new Set(every(keys, /^canaries\/(.+)\/[^/]+$/).map(({ label }) => label))].map((name) => ({
        title: `Canaries of ${name}`,
        unit: "share",
        range: [0, 1],
        curves: keys
          .filter((key) => key.startsWith(`canaries/${name}/`))
          .map((key) => one(key, key.slice(key.lastIndexOf("/") + 1).replaceAll("_", " "))),
      })),
  ],
];

// Sections of panels, and the panels in which nothing but zeros stands.
/** @param {Run[]} runs */
export const panelsOf = (runs) => {
  const metrics = runs.map((run) => run.metrics);
  const keys = [...new Set(metrics.flatMap((own) => Object.keys(own)))];
  const used = new Set([`${HELD_OUT}_low`, `${HELD_OUT}_high`]);
  /** @type {string[]} */
  const flat = [];
  /** @type {[string, Panel[]][]} */
  const sections = [];
  /** @param {string} name @param {Panel[]} panels */
  const add = (name, panels) => {
    /** @type {Panel[]} */
    const shown = [];
    for (const panel of panels) {
      const curves = panel.curves.filter(({ key }) => metrics.some((own) => own[key]?.some(known)));
      panel.curves.forEach(({ key }) => used.add(key));
      if (!curves.length || panel.without?.(curves, metrics)) continue;
      const moving = curves.filter(({ key }) => metrics.some((own) => own[key]?.some((value) => value)));
      if (moving.length || name === "Outcome") shown.push({ ...panel, curves: panel.moving ? moving : curves });
      else flat.push(panel.title);
    }
    if (shown.length) sections.push([name, shown]);
  };
  for (const [name, panels] of SECTIONS) add(name, panels(keys));
  const others = keys.filter((key) => !used.has(key));
  add(
    "Also measured",
    others.map((key) => ({ title: key, unit: "", curves: [one(key, key)] })),
  );
  return { sections, flat, metrics };
};

// A colour says the run where there are several, and else the curve.
/** @param {Run[]} runs @param {Metrics[]} metrics @param {Panel} panel @returns {Series[]} */
export const seriesOf = (runs, metrics, panel) =>
  panel.curves.flatMap(({ key, label }, at) =>
    runs.flatMap((run, place) => {
      const values = metrics[place][key];
      if (!values?.some(known)) return [];
      const held = key === HELD_OUT;
      const several = runs.length > 1;
      return [
        {
          label,
          run: several ? run.name : undefined,
          colour: several ? colourOf(run.place) : COLOURS[at % COLOURS.length],
          dash: (several ? at : Math.floor(at / COLOURS.length)) % DASHES.length,
          steps: run.axis,
          values,
          low: held ? metrics[place][`${HELD_OUT}_low`] : undefined,
          high: held ? metrics[place][`${HELD_OUT}_high`] : undefined,
          dots: held,
          exact: panel.exact,
          bold: panel.curves.length * runs.length > 2,
        },
      ];
    }),
  );

// Which colour is which run, over all charts.
/** @param {Run[]} runs */
export const runKey = (runs) =>
  el(
    "ul",
    { class: "run-key", "aria-label": "The colours of the runs" },
    runs.map((run) => el("li", { title: run.name }, swatch(run), el("span", null, ...spelled(run.name)))),
  );

/** @param {Run} run */
export const swatch = (run) => el("span", { class: "swatch", style: { background: colourOf(run.place) } });
