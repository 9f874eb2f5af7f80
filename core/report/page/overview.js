// The first view: what became of the runs, what went wrong, and the curves.

import { Chart, shared, zoom } from "./chart.js";
import { counted, duration, el, known, mean, number, percent, spelled, svg, whenOf } from "./dom.js";
import { HELD_OUT, panelsOf, runKey, seriesOf, swatch } from "./panels.js";
import { go, linkTo } from "./route.js";
import { live } from "./state.js";

/** @import { Alarm, Config, Run } from "./data.js" */
/** @import { Child } from "./dom.js" */
/** @import { Choices } from "./route.js" */
/** @import { Values } from "./chart.js" */

const ENDS = 5; // steps at either end whose means are compared, where a run has twice as many

/** @param {Values | undefined} values */
const firstAndLast = (values) => {
  const all = (values ?? []).filter(known),
    window = Math.max(1, Math.min(ENDS, Math.floor(all.length / 2)));
  return all.length ? { first: mean(all.slice(0, window)), last: mean(all.slice(-window)), window } : null;
};

/** @param {Run} run @param {number} at */
const reachOf = (run, at) => {
  const low = run.metrics[`${HELD_OUT}_low`]?.[at],
    high = run.metrics[`${HELD_OUT}_high`]?.[at];
  return known(low) && known(high) ? `95% interval ${percent(low)} to ${percent(high)}` : "";
};

// How many problems were judged, and how many different ones: the interval counts these.
/** @param {Run} run @param {number} at */
const problemsOf = (run, at) => {
  const problems = run.metrics["held_out/problems"]?.[at],
    different = run.metrics["held_out/questions"]?.[at];
  if (!known(problems)) return "";
  const fewer = known(different) && different < problems;
  return counted(problems, "problem") + (fewer ? `, ${number(different)} different` : "");
};

/** @param {Run} run */
const heldOut = (run) => {
  const values = run.metrics[HELD_OUT] ?? [];
  const first = values.findIndex(known),
    last = values.findLastIndex(known);
  return first >= 0 ? { first, last, values } : null;
};

/** @param {string} name @param {Child} value @param {Child} note */
const fact = (name, value, note) =>
  el("div", { class: "fact" }, el("dt", null, name), el("dd", null, value, note && el("small", null, note)));

/** @param {string} before @param {string} after */
const arrow = (before, after) => [el("span", { class: "before" }, before), " → ", after];

/** @param {Run} run */
const facts = (run) => {
  const reward = firstAndLast(run.metrics.reward),
    held = heldOut(run);
  const lengths = firstAndLast(run.metrics["completions/mean_length"]);
  const done = run.axis.at(-1) ?? 0;
  return el(
    "dl",
    { class: "facts" },
    fact(
      "Reward",
      reward ? arrow(number(Number(reward.first.toFixed(3))), number(Number(reward.last.toFixed(3)))) : "–",
      reward && (reward.window > 1 ? `mean of the first and the last ${reward.window} steps` : "first and last step"),
    ),
    held &&
      fact(
        "Held-out accuracy",
        held.first === held.last
          ? percent(held.values[held.last])
          : arrow(percent(held.values[held.first]), percent(held.values[held.last])),
        [reachOf(run, held.last), problemsOf(run, held.last)].filter(Boolean).join(", "),
      ),
    lengths &&
      fact("Length", arrow(number(Math.round(lengths.first)), number(Math.round(lengths.last))), "tokens, mean"),
    fact("Steps", known(run.steps) ? `${number(done)} of ${number(run.steps)}` : number(done), duration(run.seconds)),
    fact(
      "Rollouts",
      number(run.recorded),
      live()
        ? "recorded until now"
        : run.held < run.recorded
          ? `${number(run.held)} of them in this file`
          : "all in this file",
    ),
  );
};

// The settings that a reader asks for first.
/** @param {Config} config */
const manner = ({ train, lora, seed }) =>
  [
    lora && (lora.enabled ? "LoRA" : "full fine-tuning"),
    known(train?.lr) && `learning rate ${number(train.lr)}`,
    known(train?.prompts_per_step) &&
      `${number(train.prompts_per_step)} prompts × ${number(train.group_size)} completions a step`,
    known(seed) && `seed ${seed}`,
  ]
    .filter(Boolean)
    .join(", ");

/** @param {Run} run */
const heading = (run) =>
  el(
    "header",
    { class: "run" },
    el("h1", null, ...spelled(run.name)),
    el(
      "p",
      { class: "sub" },
      el("span", { class: `status ${run.status}` }, run.status),
      " ",
      ...spelled(run.model === "embedded" ? "the embedded model" : run.model),
      " on ",
      ...spelled(run.env),
      run.rewards.length ? [", rewarded by ", ...spelled(run.rewards.join(", "))] : [],
    ),
    el(
      "p",
      { class: "sub" },
      [manner(run.config), run.started && `started ${whenOf(run.started)}`].filter(Boolean).join(", "),
    ),
  );

/** @param {Run[]} runs */
const leftOut = (runs) => {
  const recorded = runs.reduce((sum, run) => sum + run.recorded, 0),
    held = runs.reduce((sum, run) => sum + run.held, 0);
  return (
    held < recorded &&
    el(
      "p",
      { class: "note" },
      `This file holds ${number(held)} of ${number(recorded)} rollouts. Here are all that failed, of every step the best, ` +
        "the worst and the longest, and a sample of whole groups of the others. The curves are of all rollouts.",
    )
  );
};

const KINDS_OF_ALARM = { health: "warning", hacking: "hacking", canary: "canary", failure: "failure", state: "end" };

/** @param {Run} run @param {Alarm} alarm */
const alarmLink = (run, alarm) =>
  linkTo("rollouts", {
    run: run.place || null,
    ...(alarm.kind === "failure" ? { failed: alarm.reward } : { step: alarm.step }),
  });

/** @param {Run[]} runs */
const alarms = (runs) => {
  const all = runs
    .flatMap((run) => run.alarms.map((alarm) => ({ run, alarm })))
    .sort((a, b) => a.alarm.step - b.alarm.step);
  if (!all.length)
    return el(
      "p",
      { class: "quiet" },
      "No alarm: no reward failed, no canary drifted, and none of the other alarms triggered.",
    );
  return el(
    "ol",
    { class: "alarms" },
    all.map(({ run, alarm }) =>
      el(
        "li",
        { class: alarm.kind },
        el("span", { class: "kind" }, KINDS_OF_ALARM[alarm.kind]),
        el("span", { class: "when" }, `step ${alarm.step}`),
        el(
          "span",
          { class: "text" },
          runs.length > 1 && [...spelled(run.name), ": "],
          ...spelled(alarm.text),
          " ",
          el("a", { href: alarmLink(run, alarm) }, "its rollouts"),
        ),
      ),
    ),
  );
};

// What happened when: evaluations and alarms on one line of steps.
/** @param {Run[]} runs */
const timeline = (runs) =>
  el(
    "div",
    { class: "timelines" },
    runs.map((run, at) => {
      const last = Math.max(1, ...runs.flatMap((own) => [own.steps ?? 0, own.axis.at(-1) ?? 0])),
        done = run.axis.at(-1) ?? 0,
        held = heldOut(run);
      /** @param {number} step */
      const x = (step) => `${1 + (98 * step) / last}%`;
      const evaluated = run.axis.map(
        (step, at) =>
          known(held?.values[at]) &&
          svg(
            "circle",
            {
              cx: x(step),
              cy: 14,
              r: 4.5,
              class: "evaluated",
            },
            svg("title", null, `step ${step}: held-out accuracy ${percent(held.values[at])}`),
          ),
      );
      const marks = run.alarms.map((alarm) =>
        svg(
          "a",
          { href: alarmLink(run, alarm), "aria-label": `the rollouts of the alarm in step ${alarm.step}` },
          svg(
            "svg",
            { x: x(alarm.step), overflow: "visible", class: `alarm ${alarm.kind}` },
            svg("path", { d: "M0 7l6 11h-12z" }),
            svg("title", null, `step ${alarm.step}: ${alarm.text}`),
          ),
        ),
      );
      return el(
        "div",
        { class: "timeline" },
        svg(
          "svg",
          {
            role: "group",
            "aria-label": `${run.name}: ${counted(run.alarms.length, "alarm")}, ${number(done)} of ${number(last)} steps`,
          },
          svg("line", { x1: x(0), x2: x(last), y1: 14, y2: 14, class: "planned" }),
          svg("line", { x1: x(0), x2: x(done), y1: 14, y2: 14, class: "made" }),
          evaluated,
          marks,
        ),
        el(
          "span",
          { class: "ends" },
          el("span", null, runs.length > 1 ? [swatch(run), ...spelled(run.name)] : "step 0"),
          held && at === 0 && el("span", { class: "meaning" }, "dots: held-out accuracy was measured"),
          el("span", null, `step ${number(last)}`),
        ),
      );
    }),
  );

/** @param {Run[]} runs */
const comparison = (runs) =>
  el(
    "div",
    { class: "scroll" },
    el(
      "table",
      { class: "runs" },
      el(
        "thead",
        null,
        el(
          "tr",
          null,
          ["Run", "Status", "Reward", "Held-out accuracy", "Length", "Steps", "Started", "Time", "Alarms"].map((name) =>
            el("th", { scope: "col" }, name),
          ),
        ),
      ),
      el(
        "tbody",
        null,
        runs.map((run) => {
          const reward = firstAndLast(run.metrics.reward),
            held = heldOut(run),
            last = held && held.values[held.last];
          const lengths = firstAndLast(run.metrics["completions/mean_length"]);
          return el(
            "tr",
            null,
            el(
              "th",
              { scope: "row" },
              swatch(run),
              el("a", { href: linkTo("rollouts", { run: run.place || null }) }, ...spelled(run.name)),
            ),
            el("td", null, el("span", { class: `status ${run.status}` }, run.status)),
            el(
              "td",
              null,
              reward ? `${number(Number(reward.first.toFixed(3)))} → ${number(Number(reward.last.toFixed(3)))}` : "–",
            ),
            el(
              "td",
              null,
              held ? `${percent(held.values[held.first])} → ${percent(last)}` : "–",
              " ",
              held && el("small", null, reachOf(run, held.last)),
            ),
            el(
              "td",
              null,
              lengths ? `${number(Math.round(lengths.first))} → ${number(Math.round(lengths.last))}` : "–",
            ),
            el("td", null, number(run.axis.at(-1) ?? 0)),
            el("td", null, whenOf(run.started)),
            el("td", null, duration(run.seconds)),
            el("td", null, number(run.alarms.length)),
          );
        }),
      ),
    ),
  );

// What the rewards of --new would have changed.
/** @param {Run[]} runs */
const renewed = (runs) =>
  runs.map((run) => {
    const { difference } = run;
    if (!difference) return null;
    const { rewards, means, unscored, groups, flips, shift } = difference,
      { lost_signal: lostSignal, gained_signal: gainedSignal } = difference,
      place = run.place || null;
    /** @param {number} count @param {string} noun @param {Choices} choices */
    const link = (count, noun, choices) =>
      el("a", { href: linkTo("rollouts", { run: place, ...choices }) }, counted(count, noun));
    /** @param {string[]} names @param {string} word */
    const lost = (names, word) => {
      if (!names.length) return null;
      const [step, group] = names[0].split(" ");
      const example = el(
        "a",
        { href: linkTo("rollouts", { run: place, step, group }) },
        `group ${group} of step ${step}`,
      );
      return [" ", counted(names.length, "group"), ` ${word}, such as `, example, "."];
    };
    return el(
      "section",
      { class: "section" },
      el("h2", null, "With ", ...spelled(rewards.join(", ")), runs.length > 1 && [" in ", ...spelled(run.name)]),
      el(
        "p",
        { class: "prose" },
        `The mean reward goes from ${number(means[0])} to ${number(means[1])}. The advantage of `,
        link(flips, "rollout", { flipped: 1, sort: "-shift" }),
        ` of ${number(run.recorded)} in ${counted(groups, "group")} turns round; `,
        `it moves by ${number(shift)} on average.`,
        lost(lostSignal, "no longer teach anything"),
        lost(gainedSignal, "now teach something"),
        unscored[0] !== unscored[1] &&
          ` ${number(unscored[0])} rollouts were without a reward, and ${number(unscored[1])} would be.`,
      ),
    );
  });

const controls = () => {
  const told = el("output", null, shared.smooth === 1 ? "off" : `${shared.smooth} steps`);
  const slider = el("input", {
    type: "range",
    min: 1,
    max: 50,
    id: "smooth",
    oninput: () => {
      shared.smooth = Number(slider.value);
      told.textContent = shared.smooth === 1 ? "off" : `${shared.smooth} steps`;
      for (const chart of shared.charts) chart.draw();
    },
  });
  slider.value = String(shared.smooth);
  return el(
    "div",
    { class: "controls" },
    el("label", { for: "smooth" }, "Smoothing"),
    slider,
    told,
    el("button", { id: "unzoom", hidden: shared.from === null, onclick: () => zoom(null, null) }, "All steps"),
    el(
      "span",
      { class: "hint" },
      "Lines are means of so many steps, numbers at the cursor those of one. Drag over a chart to zoom, click to see " +
        "the rollouts of that step.",
    ),
  );
};

/** @param {Run[]} runs */
export const overview = (runs) => {
  const { sections, flat, metrics } = panelsOf(runs);
  /** @param {number} step */
  const opened = (step) => go(linkTo("rollouts", { step }));
  /** @type {Chart[]} */
  const charts = [];
  const figures = sections.map(([name, panels]) =>
    el(
      "section",
      { class: "section" },
      el("h2", null, name),
      el(
        "div",
        { class: "charts" },
        panels.map((panel) => {
          const chart = new Chart({ ...panel, series: seriesOf(runs, metrics, panel), opened });
          charts.push(chart);
          return chart.node;
        }),
      ),
    ),
  );
  const node = el(
    "main",
    { class: "overview", id: "main" },
    runs.length === 1 ? [heading(runs[0]), facts(runs[0])] : [el("h1", null, `${runs.length} runs`), comparison(runs)],
    leftOut(runs),
    el("section", { class: "section" }, el("h2", null, "What to look at"), timeline(runs), alarms(runs)),
    renewed(runs),
    controls(),
    runs.length > 1 && runKey(runs),
    figures,
    flat.length
      ? el("p", { class: "note" }, `At zero all the way: ${[...new Set(flat)].join(", ").toLowerCase()}.`)
      : null,
  );
  return { node, close: () => charts.forEach((chart) => chart.close()) };
};
