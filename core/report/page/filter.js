// Which rollouts are listed: choices of the address in, places in order out.

import { lastUpTo, VERDICTS } from "./data.js";
import { has, known, patternOf } from "./dom.js";
import { span } from "./route.js";

/** @import { Column, Run } from "./data.js" */

/** @type {Record<string, string>} */
export const SORTS = {
  "": "as recorded",
  "-reward": "best first",
  reward: "worst first",
  "-advantage": "highest advantage",
  advantage: "lowest advantage",
  "-tokens": "longest first",
  tokens: "shortest first",
};

/** @param {string | null} text */
export const limit = (text) => (text !== null && text !== "" && Number.isFinite(Number(text)) ? Number(text) : null);

/** @param {string[]} names @param {string | null} name */
const placeOf = (names, name) => (name === null ? -1 : names.indexOf(name));

// Everything but the search in texts, which reads blocks.
/** @param {Run} run @param {URLSearchParams} choices */
export const matching = (run, choices) => {
  const { index } = run;
  /** @type {((place: number) => boolean)[]} */
  const tests = [];
  /** @param {"step" | "group" | "prompt"} name */
  const within = (name) => {
    const range = span(choices.get(name)),
      column = index[name];
    if (range) tests.push((at) => column[at] >= range[0] && column[at] <= range[1]);
  };
  within("step");
  within("group");
  within("prompt");
  /** @param {"env" | "finish"} name @param {string[]} names */
  const same = (name, names) => {
    const wanted = choices.get(name),
      column = index[name];
    if (wanted === null) return;
    const place = names.indexOf(wanted);
    tests.push((at) => column[at] === place);
  };
  same("env", run.envs);
  same("finish", run.finishes);
  const verdict = VERDICTS.indexOf(choices.get("verdict") ?? "");
  if (verdict > 0) tests.push((at) => index.verdict[at] === verdict);
  const failed = choices.get("failed"),
    reward = placeOf(run.rewards, failed);
  if (reward >= 0) tests.push((at) => index[`kind${reward}`][at] === 3);
  else if (failed === "environment") {
    const place = run.finishes.indexOf("error");
    tests.push((at) => index.finish[at] === place);
  } else if (failed !== null) tests.push((at) => index.failed[at] === 1);
  const component = placeOf(run.rewards, choices.get("reward"));
  const score = component >= 0 ? index[`score${component}`] : index.reward;
  const least = limit(choices.get("min")),
    most = limit(choices.get("max"));
  /** @param {number} value */
  const scale = (value) => 1e-6 * Math.max(1, Math.abs(value)); // the list has 32 bits of a score
  if (least !== null) tests.push((at) => score[at] >= least - scale(least));
  if (most !== null) tests.push((at) => score[at] <= most + scale(most));
  const { flipped } = index;
  if (choices.has("flipped") && flipped) tests.push((at) => flipped[at] === 1);
  const abstained = choices.get("abstained");
  if (abstained !== null && component >= 0) tests.push((at) => index[`kind${component}`][at] === 2);
  /** @type {number[]} */
  const found = [];
  for (let at = 0; at < run.held; at++) {
    if (tests.every((test) => test(at))) found.push(at);
  }
  return ordered(found, run, choices.get("sort") ?? "", score);
};

/** @param {number[]} found @param {Run} run @param {string} sort @param {Column} score */
const ordered = (found, run, sort, score) => {
  const name = sort.replace("-", ""),
    { index } = run;
  const column = new Map(Object.entries({ ...index, reward: score })).get(name);
  if (!column) return found;
  const sign = sort.startsWith("-") ? -1 : 1;
  // A rollout without a reward comes last in either order.
  const keys = new Float32Array(run.held);
  for (const at of found) keys[at] = known(column[at]) ? sign * column[at] : Infinity;
  return found.sort((a, b) => keys[a] - keys[b] || a - b);
};

// Those of the places whose texts have the words, block by block; `told` hears of the places found so far.
/**
 * @param {Run} run
 * @param {number[]} places
 * @param {string} words
 * @param {(places: number[], share: number) => void} told
 * @param {() => boolean} alive
 */
export const searched = async (run, places, words, told, alive) => {
  const wanted = patternOf(words);
  if (!wanted) return told(places, 1);
  const listed = new Set(places);
  /** @type {Set<number>} */
  const found = new Set();
  const blocks = [...new Set(places.map((place) => lastUpTo(run.starts, place)))];
  for (const [count, number] of blocks.entries()) {
    const block = await run.block(number);
    if (!alive()) return;
    const shared = block.shared.map((text) => has(text, wanted));
    block.rollouts.forEach(([prompt, columns, completion, messages], at) => {
      const place = run.starts[number] + at;
      if (!listed.has(place)) return;
      if (shared[prompt] || shared[columns] || has(completion, wanted) || (messages && has(messages, wanted))) {
        found.add(place);
      }
    });
    if (count % 8 === 7 || count === blocks.length - 1) {
      told(
        places.filter((place) => found.has(place)),
        (count + 1) / blocks.length,
      );
    }
  }
  if (!blocks.length) told([], 1);
};
