// Which rollouts are listed: choices of the address in, places in order out.

import { lastUpTo, VERDICTS } from "./data.js";
import { has, known, patternOf } from "./dom.js";
import { span } from "./route.js";

export const SORTS = {
  "": "as recorded",
  "-reward": "best first",
  reward: "worst first",
  "-advantage": "highest advantage",
  advantage: "lowest advantage",
  "-tokens": "longest first",
  tokens: "shortest first",
};

export const limit = (text) => (known(text) && text !== "" && Number.isFinite(Number(text)) ? Number(text) : null);

// Everything but the search in texts, which reads blocks.
export const matching = (run, choices) => {
  const { index } = run;
  const tests = [];
  const within = (name, text) => {
    const range = span(text),
      column = index[name];
    if (range) tests.push((at) => column[at] >= range[0] && column[at] <= range[1]);
  };
  within("step", choices.get("step"));
  within("group", choices.get("group"));
  within("prompt", choices.get("prompt"));
  const same = (name, names) => {
    const wanted = choices.get(name),
      place = names.indexOf(wanted),
      column = index[name];
    if (wanted !== null) tests.push((at) => column[at] === place);
  };
  same("env", run.envs);
  same("finish", run.finishes);
  const verdict = VERDICTS.indexOf(choices.get("verdict"));
  if (verdict > 0) tests.push((at) => index.verdict[at] === verdict);
  const failed = choices.get("failed"),
    reward = run.rewards.indexOf(failed);
  if (failed !== null && reward >= 0) tests.push((at) => index[`kind${reward}`][at] === 3);
  else if (failed === "environment") {
    const place = run.finishes.indexOf("error");
    tests.push((at) => index.finish[at] === place);
  } else if (failed !== null) tests.push((at) => index.failed[at] === 1);
  const component = run.rewards.indexOf(choices.get("reward"));
  const score = component >= 0 ? index[`score${component}`] : index.reward;
  const least = limit(choices.get("min")),
    most = limit(choices.get("max"));
  const scale = (value) => 1e-6 * Math.max(1, Math.abs(value)); // the list has 32 bits of a score
  if (least !== null) tests.push((at) => score[at] >= least - scale(least));
  if (most !== null) tests.push((at) => score[at] <= most + scale(most));
  if (choices.has("flipped") && index.flipped) tests.push((at) => index.flipped[at] === 1);
  const abstained = choices.get("abstained");
  if (abstained !== null && component >= 0) tests.push((at) => index[`kind${component}`][at] === 2);
  const found = [];
  for (let at = 0; at < run.held; at++) {
    if (tests.every((test) => test(at))) found.push(at);
  }
  return ordered(found, run, choices.get("sort") ?? "", score);
};

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
export const searched = async (run, places, words, told, alive) => {
  const wanted = patternOf(words);
  const order = new Map(places.map((place, at) => [place, at]));
  const found = [];
  const blocks = [...new Set(places.map((place) => lastUpTo(run.starts, place)))];
  for (const [count, number] of blocks.entries()) {
    const block = await run.block(number);
    if (!alive()) return;
    const shared = block.shared.map((text) => has(text, wanted));
    block.rollouts.forEach(([prompt, columns, completion, messages], at) => {
      const place = run.starts[number] + at;
      if (!order.has(place)) return;
      if (
        shared[prompt] ||
        shared[columns] ||
        has(completion, wanted) ||
        (messages && has(messages, wanted))
      ) {
        found.push(place);
      }
    });
    if (count % 8 === 7 || count === blocks.length - 1) {
      told(
        found.slice().sort((a, b) => order.get(a) - order.get(b)),
        (count + 1) / blocks.length,
      );
    }
  }
  if (!blocks.length) told([], 1);
};
