// What belongs to a rollout: the others of its group, the same prompt at other steps, the difference to one of them.

import { conversation, prompt } from "./conversation.js";
import { named, reference, VERDICTS } from "./data.js";
import { difference } from "./diff.js";
import {
  counted,
  direction,
  el,
  known,
  LONG,
  mean,
  meter,
  number,
  oneLine,
  select,
  signed,
  spelled,
  whenSeen,
} from "./dom.js";
import { choose, linkOf } from "./route.js";

/** @import { Run, Texts } from "./data.js" */

// A bar for each member of the group; the one that is open stands out.
/** @param {Run} run @param {number} place */
export const memberStrip = (run, place) => {
  const { index } = run,
    step = index.step[place],
    group = index.group[place];
  const all = run.group(step, group);
  const most = Math.max(...all.map((own) => Math.abs(index.advantage[own])), 1e-9);
  const side = linkOf(run, place, { view: "group" });
  return el(
    "nav",
    { class: "members", "aria-label": `Group ${group} of step ${step}` },
    el("span", { class: "label" }, `Group ${group}`, el("a", { href: side }, "side by side")),
    el(
      "span",
      { class: "bars" },
      all.map((own) => {
        const value = index.advantage[own],
          height = `${(45 * Math.abs(value)) / most}%`;
        const told = `#${index.number[own]}: reward ${number(index.reward[own])}, advantage ${signed(value)}`;
        return el(
          "a",
          {
            href: linkOf(run, own),
            class: own === place ? "open" : null,
            title: told,
            "aria-label": told,
            "aria-current": own === place ? "true" : null,
          },
          el("i", { class: index.failed[own] ? "failed" : direction(value), style: { height } }),
        );
      }),
    ),
  );
};

// All members of a group beside each other.
/** @param {Run} run @param {number} place */
export const sideBySide = async (run, place) => {
  const { index } = run,
    step = index.step[place],
    group = index.group[place];
  const all = run.group(step, group);
  const texts = await Promise.all(all.map((own) => run.texts(own)));
  const cards = all.map((own, at) =>
    el(
      "section",
      { class: own === place ? "card open" : "card" },
      el(
        "header",
        null,
        el("a", { href: linkOf(run, own) }, `#${index.number[own]}`),
        el("span", null, "reward ", el("b", null, number(index.reward[own]))),
        el(
          "span",
          null,
          "advantage ",
          el("b", { class: direction(index.advantage[own]) }, signed(index.advantage[own])),
        ),
        el("span", null, `${number(index.tokens[own])} tokens`),
        index.verdict[own] ? el("b", { class: VERDICTS[index.verdict[own]] }, VERDICTS[index.verdict[own]]) : null,
        run.rewards.length > 1 &&
          run.rewards.map((name, which) => {
            const { kind, score } = run.outcome(which, own);
            return (
              kind && el("span", { class: "faint" }, ...spelled(name), " ", kind === "score" ? number(score) : kind)
            );
          }),
      ),
      ...conversation(texts[at]),
    ),
  );
  return el(
    "article",
    { class: "rollout side", "aria-label": `Group ${group} of step ${step}` },
    el(
      "header",
      null,
      el(
        "h2",
        null,
        `Step ${step}`,
        el("span", { class: "faint" }, ` group ${group}, ${counted(all.length, "rollout")}`),
      ),
      el("p", null, el("a", { href: linkOf(run, place) }, "Back to one")),
    ),
    prompt(run, texts[0]),
    el("div", { class: "cards" }, cards),
  );
};

const MOST_STEPS = 24; // of one prompt that are listed: each may inflate a block

// The same prompt at other steps: one line each, so that one can see it learned.
/** @param {Run} run @param {number} place */
export const through = (run, place) => {
  const { index } = run,
    wanted = index.prompt[place],
    own = index.step[place];
  /** @type {Map<number, number[]>} */
  const steps = new Map();
  for (let at = 0; at < run.held; at++) {
    if (index.prompt[at] === wanted) steps.set(index.step[at], [...(steps.get(index.step[at]) ?? []), at]);
  }
  if (steps.size < 2) return null;
  const all = [...steps],
    gap = Math.max(1, (all.length - 1) / (MOST_STEPS - 1));
  const shown = new Set(all.map((_, at) => Math.round(at * gap)));
  const rows = all
    .filter(([step], at) => shown.has(at) || step === own)
    .map(([step, places]) => {
      const best = places.reduce((one, two) => (index.reward[two] > index.reward[one] ? two : one));
      const average = mean(places.map((at) => index.reward[at]).filter(known));
      const excerpt = el("td", { class: "excerpt", dir: "auto" });
      whenSeen(excerpt, async () =>
        excerpt.replaceChildren(...spelled(oneLine((await run.texts(best)).completion, 220))),
      );
      return el(
        "tr",
        { class: step === own ? "open" : null },
        el("th", { scope: "row" }, el("a", { href: linkOf(run, best) }, `step ${step}`)),
        el("td", null, meter(average, run.scale, number(Number(average.toFixed(3))))),
        excerpt,
      );
    });
  return el(
    "section",
    { class: "part through" },
    el(
      "h3",
      null,
      "The same prompt through time",
      rows.length < steps.size && el("small", null, `${rows.length} of ${steps.size} steps`),
    ),
    el(
      "div",
      { class: "scroll" },
      el(
        "table",
        null,
        el(
          "thead",
          { class: "aside" },
          el(
            "tr",
            null,
            ["Step", "Mean reward of the group", "Its best completion"].map((name) => el("th", { scope: "col" }, name)),
          ),
        ),
        el("tbody", null, rows),
      ),
    ),
  );
};

/** @param {string} before @param {string} after  */
const differenceNode = (before, after) => {
  const names = /** @type {const} */ ({ same: "span", gone: "del", new: "ins" });
  const cut = Math.max(before.length, after.length) > LONG;
  const text = el(
    "pre",
    { class: "quoted", dir: "auto", tabindex: "0" },
    difference(before.slice(0, LONG), after.slice(0, LONG)).map(([kind, words]) =>
      el(names[kind], null, ...spelled(words)),
    ),
  );
  return cut ? [el("p", { class: "hint" }, `Of the first ${number(LONG)} characters of either.`), text] : [text];
};

// The choice of another completion, from which the difference is shown in the place of the text.
/**
 * @param {Run} run
 * @param {number} place
 * @param {Texts} texts
 * @param {Element} body
 * @param {URLSearchParams} choices
 */
export const compareWith = (run, place, texts, body, choices) => {
  const { index } = run,
    all = run.group(index.step[place], index.group[place]);
  const rated = all.filter((own) => own !== place && known(index.reward[own]));
  /** @param {boolean} better */
  const pick = (better) =>
    rated.reduce(
      (one, two) =>
        (better ? index.reward[two] > index.reward[one] : index.reward[two] < index.reward[one]) ? two : one,
      rated[0],
    );
  /** @type {number[]} */
  const same = [];
  for (let at = 0; at < run.held; at++) {
    if (index.prompt[at] === index.prompt[place] && index.step[at] !== index.step[place]) same.push(at);
  }
  /** @type {[string, string][]} */
  const options = [["", "no difference"]];
  if (rated.length) {
    options.push([reference(run, pick(true)), `to the best of its group, #${index.number[pick(true)]}`]);
    if (pick(false) !== pick(true))
      options.push([reference(run, pick(false)), `to the worst of its group, #${index.number[pick(false)]}`]);
  }
  all.filter((own) => own !== place).forEach((own) => options.push([reference(run, own), `to #${index.number[own]}`]));
  [...new Map(same.map((at) => [index.step[at], at])).values()]
    .slice(0, 60)
    .forEach((at) => options.push([reference(run, at), `to step ${index.step[at]}, #${index.number[at]}`]));
  /** @param {string} other */
  const show = async (other) => {
    const [step, wanted] = other.split(".").map(Number);
    const found = run.find(step, wanted);
    if (found < 0) return body.replaceChildren(...conversation(texts));
    const theirs = await run.texts(found);
    return body.replaceChildren(
      el(
        "p",
        { class: "hint" },
        el("del", null, `only in ${named(run, found)}`),
        " ",
        el("ins", null, "only in this one"),
      ),
      ...differenceNode(theirs.completion, texts.completion),
    );
  };
  const to = choices.get("to");
  if (to) show(to);
  return (
    options.length > 1 &&
    el(
      "label",
      { class: "compare" },
      el("span", { class: "aside" }, "Difference"),
      select(options, to, (value) => choose({ to: value, by: null, at: reference(run, place) })),
    )
  );
};
