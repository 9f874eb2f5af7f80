// What the file holds: blocks in, numbers and texts of rollouts out. A block is inflated when it is first looked at.

import { bare, byId, known } from "./dom.js";

const KEPT = 96; // blocks of texts that stay inflated
const ARRAYS = { f4: Float32Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
const KINDS = ["", "score", "abstain", "failure"];
export const VERDICTS = ["", "wrong", "right"];
export const FINISHED = bare({ stop: "ended", length: "cut at a limit", error: "environment failed" });

export const inPage = (name) => byId(name).textContent;

const inflate = async (name, source) => {
  const packed = atob(await source(name));
  const bytes = new Uint8Array(packed.length);
  for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
};

export const inflateJson = async (name, source) => JSON.parse(new TextDecoder().decode(await inflate(name, source)));

// The last place of an ascending list whose value is at most `value`.
export const lastUpTo = (list, value) => {
  let low = 0,
    high = list.length;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (list[middle] <= value) low = middle;
    else high = middle;
  }
  return low;
};

export const parsed = (text, otherwise) => {
  try {
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
};

export class Run {
  // source: where the blocks of this state of the run are: the name of one in, its text out.
  constructor(place, summary, source) {
    Object.assign(this, summary, { source });
    for (const name of ["metrics", "cases", "weights"]) this[name] = bare(summary[name]);
    this.place = place;
    this.kept = new Map();
  }

  // The numbers of all rollouts, by column.
  load() {
    this.loading ??= inflate(`run${this.place}-index`, this.source).then((buffer) => {
      let at = 0;
      this.index = {};
      for (const [name, type] of this.columns) {
        const length = this.held * ARRAYS[type].BYTES_PER_ELEMENT;
        this.index[name] = new ARRAYS[type](buffer.slice(at, at + length));
        at += length;
      }
      this.heldSteps = [...new Set(this.index.step ?? [])];
    });
    return this.loading;
  }

  block(number) {
    const found = this.kept.get(number) ?? inflateJson(`run${this.place}-texts${number}`, this.source);
    this.kept.delete(number);
    this.kept.set(number, found);
    if (this.kept.size > KEPT) this.kept.delete(this.kept.keys().next().value);
    return found;
  }

  async texts(place) {
    const number = lastUpTo(this.starts, place);
    return this.read(await this.block(number), place - this.starts[number]);
  }

  read(block, at) {
    const [prompt, columns, completion, messages, info, outcomes, turnRewards, turnAdvantages, tokens] =
      block.rollouts[at];
    return {
      prompt: parsed(block.shared[prompt], []),
      seen: block.seen[prompt],
      columns: block.shared[columns],
      completion,
      messages: parsed(messages, []),
      info: parsed(info, null),
      infoText: info,
      outcomes,
      turnRewards,
      turnAdvantages,
      tokens:
        tokens?.[0].map((piece, own) => {
          const told = tokens[1][own];
          return {
            text: block.pieces[piece],
            nats: told === null ? null : told / 100,
            apart: tokens[2] ? tokens[2][own] / 10000 : null,
            advantage: tokens[3]?.[own] ?? null,
          };
        }) ?? null,
    };
  }

  find(step, number) {
    const { step: steps, number: numbers } = this.index;
    for (let place = this.first(step); place < this.held && steps[place] === step; place++) {
      if (numbers[place] === number) return place;
    }
    return -1;
  }

  // The place of a rollout as an address names it, "step.number"; -1 of none.
  at(name) {
    const [step, wanted] = /^\d+\.\d+$/.test(name) ? name.split(".").map(Number) : [-1, -1];
    return this.find(step, wanted);
  }

  // The first place of a step, for the columns stand in order of step.
  first(step) {
    let low = 0,
      high = this.held;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.index.step[middle] < step) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  group(step, group) {
    const found = [];
    for (let place = this.first(step); place < this.held && this.index.step[place] === step; place++) {
      if (this.index.group[place] === group) found.push(place);
    }
    return found;
  }

  // What a reward made of a rollout: its kind, and its score to four digits; texts() has all of them.
  outcome(reward, place) {
    return { kind: KINDS[this.index[`kind${reward}`][place]], score: this.index[`score${reward}`][place] };
  }
}

export const reference = (run, place) => `${run.index.step[place]}.${run.index.number[place]}`;

export const named = (run, place) =>
  `step ${run.index.step[place]}, group ${run.index.group[place]}, #${run.index.number[place]}`;

export const scaleOf = (run) => {
  let low = 0,
    high = 0;
  for (const value of run.index.reward ?? []) {
    if (Number.isNaN(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
};
