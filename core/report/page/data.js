// What the file holds: blocks in, numbers and texts of rollouts out. A block is inflated when it is first looked at.

import { bare, byId } from "./dom.js";

/** @typedef {Float32Array | Uint32Array | Uint16Array | Uint8Array} Column */
/** @typedef {"f4" | "u4" | "u2" | "u1"} ColumnType */
/** @typedef {(name: string) => string | Promise<string>} Source where blocks are: the name of one in, its text out */
/**
 * The numbers of all rollouts by column, from index.py. A run without rollouts has none; the optional ones need --new.
 * @typedef {{
 *   step: Column, number: Column, group: Column, tokens: Column, prompt: Column, env: Column, finish: Column,
 *   verdict: Column, failed: Column, reward: Column, advantage: Column,
 *   new_reward?: Column, new_advantage?: Column, shift?: Column, flipped?: Column,
 *   [kind: `kind${number}`]: Column, [score: `score${number}`]: Column
 * }} Index
 */
/**
 * An alarm, from alarms.py.
 * @typedef {{
 *   step: number, kind: "health" | "hacking" | "canary" | "failure" | "state", text: string, reward: string
 * }} Alarm
 */
/**
 * What a regression case of a reward needs, from cases.py.
 * @typedef {{ columns: string[] | null, options: string | null, grouped: boolean }} Reads
 */
/**
 * What the rewards of --new would change, from compared.py.
 * @typedef {{
 *   rewards: string[], means: [number | null, number | null], unscored: [number, number], groups: number,
 *   lost_signal: string[], gained_signal: string[], flips: number, shift: number | null
 * }} Difference
 */
/**
 * The settings that the page reads.
 * @typedef {{
 *   train?: { lr?: number | null, prompts_per_step?: number | null, group_size?: number | null },
 *   lora?: { enabled?: boolean }, seed?: number | null
 * }} Config
 */
/** @typedef {Record<string, (number | null)[]>} Metrics */
/**
 * A run without its rollouts, from summary.py.
 * @typedef {{
 *   name: string, env: string, model: string, status: string, started: string, seconds: number | null,
 *   steps: number | null,
 *   config: Config, versions: { libraries?: object, plugins?: object }, weights: Record<string, number>,
 *   axis: number[], metrics: Metrics, alarms: Alarm[], difference?: Difference,
 *   recorded: number, held: number, recordedBySteps: [number, number][],
 *   rewards: string[], envs: string[], finishes: string[], columns: [keyof Index, ColumnType][],
 *   starts: number[], cases: Record<string, Reads>, unseen: string | null
 * }} Summary
 */
/**
 * A rollout, from blocks.py: places of prompt and columns among the shared texts; completion, messages, info;
 * score and reason by reward; rewards and advantages by turn; pieces, log-probabilities, ratios, advantages by token;
 * the episode of an agent; the verifier's reason.
 * @typedef {[
 *   number, number, string, string | null, string | null, [number | null, string | null][],
 *   (number | null)[] | null, (number | null)[] | null,
 *   [number[], (number | null)[], number[] | null, number[] | null] | null, Episode | null,
 *   string | null
 * ]} Packed
 */
/** @typedef {{ shared: string[], seen: (string | null)[], pieces: string[], rollouts: Packed[] }} Block */
/** @typedef {{ role: string, content?: unknown, [other: string]: unknown }} Message */
/** @import { Episode } from "./episode.js" */
/** @typedef {{ text: string, nats: number | null, apart: number | null, advantage: number | null }} Token */
/** @typedef {Awaited<ReturnType<Run["texts"]>>} Texts */

const KEPT = 96; // blocks of texts that stay inflated
/** @type {Record<ColumnType, (new (buffer: ArrayBuffer) => Column) & { BYTES_PER_ELEMENT: number }>} */
const ARRAYS = { f4: Float32Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };
const KINDS = ["", "score", "abstain", "failure"];
export const VERDICTS = ["", "wrong", "right"];
export const FINISHED = bare({ stop: "ended", length: "cut at a limit", error: "environment failed" });

/** @param {string} name */
export const inPage = (name) => byId(name).textContent;

/** @param {string} name @param {Source} source */
const inflate = async (name, source) => {
  const packed = atob(await source(name));
  const bytes = new Uint8Array(packed.length);
  for (let at = 0; at < packed.length; at++) bytes[at] = packed.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
};

/** @param {string} name @param {Source} source @returns {Promise<any>} */
const inflateJson = async (name, source) => JSON.parse(new TextDecoder().decode(await inflate(name, source)));

// The last place of an ascending list whose value is at most `value`.
/** @param {ArrayLike<number>} list @param {number} value */
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

/** @param {string | null} text @param {unknown} otherwise @returns {any} */
export const parsed = (text, otherwise) => {
  try {
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise;
  }
};

export class Run {
  // source: where the blocks of this state of the run are: the name of one in, its text out.
  /** @param {number} place @param {Summary} summary @param {Source} source */
  constructor(place, summary, source) {
    this.place = place;
    this.source = source;
    this.name = summary.name;
    this.env = summary.env;
    this.model = summary.model;
    this.status = summary.status;
    this.started = summary.started;
    this.seconds = summary.seconds;
    this.steps = summary.steps;
    this.config = summary.config;
    this.versions = summary.versions;
    this.weights = bare(summary.weights);
    this.axis = summary.axis;
    this.metrics = bare(summary.metrics);
    this.alarms = summary.alarms;
    this.difference = summary.difference;
    this.recorded = summary.recorded;
    this.held = summary.held;
    this.recordedBySteps = summary.recordedBySteps;
    this.rewards = summary.rewards;
    this.envs = summary.envs;
    this.finishes = summary.finishes;
    this.columns = summary.columns;
    this.starts = summary.starts;
    this.cases = bare(summary.cases);
    this.unseen = summary.unseen;
    /** @type {Map<number, Promise<Block>>} */
    this.kept = new Map(); // blocks of texts, the last that was read at the end
    /** @type {Promise<void> | undefined} */
    this.loading = undefined;
    this.index = /** @type {Index} */ ({});
    /** @type {number[]} */
    this.heldSteps = [];
    /** @type {[number, number]} */
    this.scale = [0, 0]; // the lowest and the highest reward
    this.judged = false; // whether rollouts have verdicts
  }

  // The numbers of all rollouts, by column.
  load() {
    this.loading ??= inflate(`run${this.place}-index`, this.source).then((buffer) => {
      let at = 0;
      for (const [name, type] of this.columns) {
        const length = this.held * ARRAYS[type].BYTES_PER_ELEMENT;
        this.index[name] = new ARRAYS[type](buffer.slice(at, at + length));
        at += length;
      }
      this.heldSteps = [...new Set(this.index.step ?? [])];
      this.scale = scaleOf(this);
      this.judged = this.index.verdict?.some((verdict) => verdict > 0) ?? false;
    });
    return this.loading;
  }

  /** @param {number} number @returns {Promise<Block>} */
  block(number) {
    const found = this.kept.get(number) ?? inflateJson(`run${this.place}-texts${number}`, this.source);
    this.kept.delete(number);
    this.kept.set(number, found);
    for (const oldest of this.kept.keys()) {
      if (this.kept.size <= KEPT) break;
      this.kept.delete(oldest);
    }
    return found;
  }

  /** @param {number} place */
  async texts(place) {
    const number = lastUpTo(this.starts, place);
    return this.read(await this.block(number), place - this.starts[number]);
  }

  /** @param {Block} block @param {number} at */
  read(block, at) {
    const [prompt, columns, completion, messages, info, outcomes, turnRewards, turnAdvantages, tokens, episode, why] =
      block.rollouts[at];
    return {
      prompt: /** @type {Message[]} */ (parsed(block.shared[prompt], [])),
      seen: block.seen[prompt],
      columns: block.shared[columns],
      completion,
      messages: /** @type {Message[]} */ (parsed(messages, [])),
      info: parsed(info, null),
      infoText: info,
      outcomes,
      turnRewards,
      turnAdvantages,
      episode,
      why,
      tokens:
        tokens?.[0].map((piece, own) => {
          const hundredths = tokens[1][own];
          return {
            text: block.pieces[piece],
            nats: hundredths === null ? null : hundredths / 100,
            apart: tokens[2] ? tokens[2][own] / 10000 : null,
            advantage: tokens[3]?.[own] ?? null,
          };
        }) ?? null,
    };
  }

  /** @param {number} step @param {number} number */
  find(step, number) {
    const { step: steps, number: numbers } = this.index;
    for (let place = this.first(step); place < this.held && steps[place] === step; place++) {
      if (numbers[place] === number) return place;
    }
    return -1;
  }

  // The place of a rollout as an address names it, "step.number"; -1 of none.
  /** @param {string} name */
  at(name) {
    const [step, wanted] = /^\d+\.\d+$/.test(name) ? name.split(".").map(Number) : [-1, -1];
    return this.find(step, wanted);
  }

  // The first place of a step, for the columns stand in order of step.
  /** @param {number} step */
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

  /** @param {number} step @param {number} group */
  group(step, group) {
    const found = [];
    for (let place = this.first(step); place < this.held && this.index.step[place] === step; place++) {
      if (this.index.group[place] === group) found.push(place);
    }
    return found;
  }

  // What a reward made of a rollout: its kind, and its score to four digits; texts() has all of them.
  /** @param {number} reward @param {number} place */
  outcome(reward, place) {
    return { kind: KINDS[this.index[`kind${reward}`][place]], score: this.index[`score${reward}`][place] };
  }
}

/** @param {Run} run @param {number} place */
export const reference = (run, place) => `${run.index.step[place]}.${run.index.number[place]}`;

/** @param {Run} run @param {number} place */
export const named = (run, place) =>
  `step ${run.index.step[place]}, group ${run.index.group[place]}, #${run.index.number[place]}`;

/** @param {Run} run @returns {[number, number]} */
const scaleOf = (run) => {
  let low = 0,
    high = 0;
  for (const value of run.index.reward ?? []) {
    if (Number.isNaN(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
};

// The runs of a page; summary: where the block is that the page begins with, source: where the others are.
/** @param {Source} summary @param {Source} source */
export const runsOf = async (summary, source) => {
  /** @type {{ runs: Summary[] }} */
  const { runs } = await inflateJson("summary", summary);
  return runs.map((own, place) => new Run(place, own, source));
};
