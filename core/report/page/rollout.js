// One rollout: what was asked, what was answered, what each reward made of it, and the links to what belongs to it.

import { episode } from "./episode.js";
import { conversation, prompt } from "./conversation.js";
import { FINISHED, named, parsed, reference, VERDICTS } from "./data.js";
import { bare, copy, direction, el, inPieces, known, number, percent, quoted, signed, spelled } from "./dom.js";
import { compareWith, memberStrip, through } from "./group.js";
import { caseText, members } from "./python.js";
import { choose } from "./route.js";
import { address } from "./state.js";

/** @import { Run, Texts, Token } from "./data.js" */
/** @import { Child } from "./dom.js" */

const FEW_TOKENS = 20000; // that are drawn one by one

/** @param {number} share */
const strength = (share) => Math.min(75, 75 * share).toFixed(0);
/** @param {number} value @param {number} most */
const twoWays = (value, most) =>
  value === 0
    ? null
    : `color-mix(in srgb, var(${value > 0 ? "--c2" : "--c1"}) ${strength(Math.abs(value) / most)}%, transparent)`;

/**
 * What tokens are coloured by: a number of each, the colour of a number, and the words for it.
 * @typedef {{
 *   name: string, says: string, samples: number[], unit: string, value: (token: Token) => number | null,
 *   colour: (value: number) => string | null, told: (value: number) => string
 * }} Colouring
 */
/** @type {Record<string, Colouring>} */
const COLOURINGS = bare({
  token: {
    name: "log-probability",
    says: "Every sampled token, the darker the less probable it was: ",
    samples: [-0.01, -0.5, -1.5, -3, -6],
    unit: " nats.",
    value: ({ nats }) => nats,
    colour: (nats) => `color-mix(in srgb, var(--c1) ${strength((-16 / 75) * nats)}%, transparent)`,
    told: (nats) => `log-probability ${number(nats)}, probability ${percent(Math.exp(nats))}`,
  },
  ratio: {
    name: "ratio",
    says: "How much more or less probable the policy that trained found each token than whoever sampled it: ",
    samples: [0.5, 0.8, 1, 1.25, 2],
    unit: " times, before any correction.",
    value: ({ apart }) => (known(apart) ? Math.exp(apart) : null),
    colour: (ratio) => twoWays(Math.log(ratio), Math.log(2)),
    told: (ratio) => `${number(ratio)} times as probable to the policy that trained`,
  },
  advantage: {
    name: "advantage",
    says: "What each token was trained with: ",
    samples: [-2, -1, 0, 1, 2],
    unit: ".",
    value: ({ advantage }) => advantage,
    colour: (advantage) => twoWays(advantage, 2),
    told: (advantage) => `advantage ${signed(advantage)}`,
  },
});

/** @param {string} text @param {number | null} own @param {Colouring} colouring */
const coloured = (text, own, { name, colour, told }) =>
  el(
    "span",
    {
      title: known(own) ? told(own) : `${name} unknown`,
      style: known(own) ? { "background-color": colour(own) ?? "" } : null,
    },
    ...spelled(text),
  );

/** @param {Token[]} tokens @param {Colouring} colouring */
const scale = (tokens, colouring) =>
  el(
    "p",
    { class: "hint" },
    colouring.says,
    colouring.samples.map((own) => coloured(` ${number(own)} `, own, colouring)),
    colouring.unit,
    tokens.length > FEW_TOKENS && ` The first ${number(FEW_TOKENS)}.`,
  );

/** @param {Token[]} tokens @param {Colouring} colouring */
const byToken = (tokens, colouring) =>
  el(
    "pre",
    { class: "quoted tokens", dir: "auto", tabindex: "0" },
    tokens.map((own) => coloured(own.text, colouring.value(own), colouring)),
  );

// What was said: an agent's calls or a conversation, its tokens coloured where that was chosen.
/** @param {Texts} texts @param {Colouring | null} colouring @returns {Child[]} */
const said = (texts, colouring) => {
  const shown = texts.tokens?.slice(0, FEW_TOKENS);
  const drawn = colouring && shown && texts.tokens ? { colouring, shown, hint: scale(texts.tokens, colouring) } : null;
  if (!texts.episode) return drawn ? [drawn.hint, byToken(drawn.shown, drawn.colouring)] : conversation(texts);
  /** @type {(from: number, to: number) => Node | null} */
  const sampled = (from, to) => drawn && byToken(drawn.shown.slice(from, to), drawn.colouring);
  return [drawn?.hint, episode(texts.episode, texts, sampled)];
};

// Which colourings a rollout has numbers for; those it was trained with are missing where it had no gradient.
/** @param {Token[]} tokens */
const colourings = (tokens) =>
  Object.entries(COLOURINGS).filter(([name, { value }]) => name === "token" || tokens.some((own) => known(value(own))));

/** @param {number | null} score @param {number} weight */
const weighted = (score, weight) =>
  known(score) && weight !== 1 ? `× ${number(weight)} = ${number(score * weight)}` : `× ${number(weight)}`;

/** @param {Run} run @param {number} place @param {Texts} texts */
const outcomes = (run, place, texts) => {
  const rows = run.rewards.map((name, at) => {
    const { kind } = run.outcome(at, place),
      [score, reason] = texts.outcomes[at];
    if (!kind) return null;
    return el(
      "tr",
      { class: kind },
      el("th", { scope: "row" }, ...spelled(name)),
      el("td", null, kind === "score" ? number(score) : kind === "abstain" ? "abstained" : "failed"),
      el(
        "td",
        { class: "faint" },
        known(run.weights[name]) ? weighted(kind === "score" ? score : null, run.weights[name]) : "",
      ),
      el("td", { class: "reason" }, reason ? quoted(reason) : ""),
    );
  });
  return (
    rows.some(Boolean) &&
    el(
      "table",
      { class: "outcomes" },
      el("caption", { class: "aside" }, "What each reward made of it"),
      el(
        "thead",
        { class: "aside" },
        el(
          "tr",
          null,
          ["Reward", "Score", "Weight", "Reason"].map((name) => el("th", { scope: "col" }, name)),
        ),
      ),
      el("tbody", null, rows),
    )
  );
};

/** @param {Texts} texts */
const columns = (texts) => {
  const rows = members(texts.columns);
  return (
    rows.length > 0 &&
    el(
      "details",
      { class: "part" },
      el("summary", null, "The row that the rewards read"),
      el(
        "table",
        { class: "columns" },
        inPieces(el("tbody"), rows, ([name, json]) => {
          const value = parsed(json, json);
          const text = typeof value === "string" ? value : Array.isArray(value) ? JSON.stringify(value, null, 1) : json;
          return el("tr", null, el("th", { scope: "row" }, ...spelled(name)), el("td", null, quoted(text)));
        }),
      ),
    )
  );
};

/** @param {Texts} texts */
const information = (texts) =>
  texts.infoText &&
  texts.infoText !== "{}" &&
  el(
    "details",
    { class: "part" },
    el("summary", null, "What the environment reported"),
    quoted(texts.info ? JSON.stringify(texts.info, null, 2) : texts.infoText),
  );

// A Case for one reward, as `grpo shrink` would print it for this text.
/** @param {Run} run @param {number} place @param {Texts} texts @param {string} reward */
const regression = async (run, place, texts, reward) => {
  const at = run.rewards.indexOf(reward),
    reads = run.cases[reward];
  const group = reads?.grouped ? run.group(run.index.step[place], run.index.group[place]) : [place];
  /** @type {[number, Texts][]} */
  const found = [];
  for (const own of group) {
    const read = own === place ? texts : await run.texts(own);
    if (own === place || !read.info?.failure) found.push([own, read]);
  }
  return caseText(
    reads,
    texts.columns,
    found.map(([, read]) => read.completion),
    found.map(([own, read]) => [run.outcome(at, own).kind, read.outcomes[at][0], read.outcomes[at][1]]),
  );
};

/** @param {Run} run @param {number} place @param {Texts} texts */
const actions = (run, place, texts) => {
  const scored = run.rewards.filter((_, at) => run.outcome(at, place).kind);
  return el(
    "div",
    { class: "actions" },
    el("button", { onclick: () => copy(address(), "Link") }, "Copy link"),
    scored.map((name) =>
      el(
        "button",
        {
          class: "case",
          title: "A Case for the SPEC of this reward, with what it scored",
          onclick: async () => copy(await regression(run, place, texts, name), "Regression case"),
        },
        scored.length > 1 ? ["Copy as a case of ", ...spelled(name)] : "Copy as a regression case",
      ),
    ),
    el("button", { onclick: () => copy(texts.completion, "Completion") }, "Copy completion"),
  );
};

/** @param {Run} run @param {number} place @param {URLSearchParams} choices */
export const detail = async (run, place, choices) => {
  const texts = await run.texts(place),
    { index } = run;
  const finish = run.finishes[index.finish[place]];
  const verdict = VERDICTS[index.verdict[place]];
  const failure = texts.info?.failure;
  const offered = texts.tokens ? colourings(texts.tokens) : [];
  const by = offered.some(([name]) => name === choices.get("by")) ? choices.get("by") : null;
  const body = el("div", { class: "answer" }, ...said(texts, by ? COLOURINGS[by] : null));
  const tokens =
    offered.length > 0 &&
    el(
      "label",
      { class: "colouring" },
      "Tokens by ",
      el(
        "select",
        { onchange: (event) => choose({ by: event.currentTarget.value || null, to: null, at: reference(run, place) }) },
        el("option", { value: "", selected: by === null }, "–"),
        offered.map(([own, { name }]) => el("option", { value: own, selected: by === own }, name)),
      ),
    );
  return el(
    "article",
    { class: "rollout", "aria-label": named(run, place) },
    el(
      "header",
      null,
      el(
        "h2",
        null,
        `Step ${index.step[place]}`,
        el("span", { class: "faint" }, ` group ${index.group[place]} · #${index.number[place]}`),
      ),
      el(
        "p",
        { class: "figures" },
        el("span", null, "reward ", el("b", null, number(index.reward[place]))),
        index.failed[place]
          ? el("span", null, "failed, and not trained on")
          : el(
              "span",
              null,
              "advantage ",
              el("b", { class: direction(index.advantage[place]) }, signed(index.advantage[place])),
            ),
        index.new_reward &&
          index.new_advantage &&
          el(
            "span",
            { class: "renewed" },
            "with --new ",
            el("b", null, number(index.new_reward[place])),
            ", ",
            el("b", { class: direction(index.new_advantage[place]) }, signed(index.new_advantage[place])),
          ),
        el("span", null, `${number(index.tokens[place])} tokens, ${FINISHED[finish] ?? finish}`),
        run.envs.length > 1 && el("span", null, ...spelled(run.envs[index.env[place]])),
        verdict && el("span", { class: `verdict ${verdict}` }, verdict),
      ),
      failure && el("p", { class: "failure" }, ...spelled(String(failure))),
      outcomes(run, place, texts) || null,
      texts.why && el("div", { class: "reason" }, "Verdict: ", quoted(texts.why)),
      actions(run, place, texts),
    ),
    memberStrip(run, place),
    prompt(run, texts),
    el(
      "section",
      { class: "part" },
      el("h3", null, texts.episode ? "Episode" : "Completion", tokens, compareWith(run, place, texts, body, choices)),
      body,
    ),
    columns(texts) || null,
    information(texts) || null,
    through(run, place),
  );
};
