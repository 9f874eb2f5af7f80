// An episode of an agent: its calls in order, those of a branch further in; of each what was new and what was answered.

import { message } from "./conversation.js";
import { bare, el, has, known, number, quoted, searching, spelled } from "./dom.js";

/** @import { Texts } from "./data.js" */
/** @import { Child } from "./dom.js" */
/** @typedef {{ role: string, text: string, calls: { name: string, arguments: Record<string, unknown> }[] }} Turn */
/**
 * A call, from agent_calls.py.
 * @typedef {{
 *   parent: number | null, root: string | null, trains: boolean, delivered: boolean, prompt_tokens: number,
 *   sampled_tokens: number, finish: string | null, ignored: string[], new: Turn[], said: Turn | null,
 *   at: number | null, depth: number
 * }} Call
 */
/**
 * An episode, from agent_calls.py.
 * @typedef {{
 *   calls: number, tokens_trained: number, tokens_untrained: number, model_seconds: number, own_seconds: number,
 *   exit: number | null, timed_out: boolean, refused: string[], stdout: string, stderr: string, tree: Call[],
 *   files: Record<string, string | null>, files_omitted: number
 * }} Episode
 */

const WHY = bare({
  first: "the first",
  thread: "another conversation of the program",
  tools: "other tools",
  system: "another system message",
  compacted: "a compacted history",
  rewritten: "a rewritten history",
  template: "the chat template cannot continue",
  again: "the same question again",
});
const FOLDED = { lines: 16, characters: 1500 }; // longer texts of others are folded
const DEEPEST = 6; // branches are indented no further

// A call of a tool as code spells one.
/** @param {Turn["calls"][number]} call */
const use = ({ name, arguments: given }) =>
  `${name}(${Object.entries(given)
    .map(([key, value]) => `${key}=${JSON.stringify(value)}`)
    .join(", ")})`;

/** @param {Turn} turn */
const textOf = ({ text, calls }) => [...(text ? [text] : []), ...calls.map(use)].join("\n");

// A text that is folded where it is long, unless what the reader looks for is in it.
/** @param {string} text */
const folded = (text) => {
  const lines = text.split("\n").length;
  if (lines <= FOLDED.lines && text.length <= FOLDED.characters) return quoted(text);
  return el(
    "details",
    { class: "folded", open: searching.pattern !== null && has(text, searching.pattern) },
    el("summary", null, `${number(lines)} lines, ${number(text.length)} characters`),
    quoted(text),
  );
};

/** @param {Call} call @returns {[string, string][]} */
const marks = (call) => {
  if (!call.said) return [["never answered", "bad"]];
  /** @type {[string, string][]} */
  const found = [
    !call.delivered ? ["not delivered", "bad"] : call.trains ? ["trains", "good"] : ["does not train", ""],
  ];
  if (call.finish === "length") found.push(["cut at the limit", "bad"]);
  return found;
};

/** @param {Call} call @param {number} place */
const heading = (call, place) =>
  el(
    "div",
    { class: "call-head" },
    el("b", null, `Call ${place}`),
    el(
      "span",
      null,
      call.parent === null
        ? ["begins: ", ...spelled(WHY[call.root ?? ""] ?? String(call.root))]
        : `continues call ${call.parent}`,
    ),
    marks(call).map(([name, kind]) => el("span", { class: `mark ${kind}` }, name)),
    el(
      "span",
      { class: "faint" },
      `${number(call.prompt_tokens)} tokens read, ${number(call.sampled_tokens)} written`,
      call.ignored.length > 0 && ["; without effect: ", ...spelled(call.ignored.join(", "))],
    ),
  );

/** @param {Episode} own */
const ended = ({ exit, timed_out }) => {
  if (timed_out) return "Its time limit ended the agent.";
  if (exit === null) return "The agent did not start.";
  return exit < 0 ? `Signal ${-exit} ended the agent.` : `The agent ended with exit status ${exit}.`;
};

/** @param {Episode} own */
const changed = ({ files, files_omitted }) => {
  const names = Object.entries(files);
  return (
    names.length + files_omitted > 0 && [
      el("p", { class: "hint" }, "Changed files:"),
      names.map(([name, text]) =>
        text === null
          ? el("p", { class: "file" }, ...spelled(name), el("span", { class: "faint" }, " deleted"))
          : el("details", { class: "folded file" }, el("summary", null, ...spelled(name)), quoted(text)),
      ),
      files_omitted > 0 && el("p", { class: "file faint" }, `and ${number(files_omitted)} more`),
    ]
  );
};

/**
 * @param {Episode} own
 * @param {Texts} texts of its rollout
 * @param {(from: number, to: number) => Node | null} sampled draws tokens of the rollout; null: as text
 */
export const episode = (own, texts, sampled) => {
  const failed = Boolean(texts.info?.failure);
  const calls = own.tree.map((call, place) => {
    const tokens = known(call.at) ? sampled(call.at, call.at + call.sampled_tokens) : null;
    return el(
      "section",
      {
        class: `agent-call ${call.trains ? "trains" : ""} ${call.depth ? "branch" : ""}`,
        "aria-label": `call ${place}`,
        style: call.depth ? { "--depth": String(Math.min(call.depth, DEEPEST)) } : null,
      },
      heading(call, place),
      call.new.map((turn) => message({ role: turn.role, content: "" }, { body: folded(textOf(turn)) })),
      call.said &&
        message({ role: "assistant", content: textOf(call.said) }, { title: "policy", body: tokens ?? undefined }),
    );
  });
  const last = own.tree.findLast((call) => call.said && call.delivered)?.said;
  const wrong = failed || own.timed_out || own.exit !== 0;
  /** @type {Child[]} */
  const end = [
    texts.completion.trim() !== last?.text.trim() && message({ role: "answer", content: texts.completion }),
    el("p", { class: wrong ? "failure" : "hint" }, ended(own)),
    own.refused.length > 0 && message({ role: "refused", content: own.refused.join("\n") }),
    wrong && own.stderr.trim() !== "" && message({ role: "standard error" }, { body: folded(own.stderr.trim()) }),
    changed(own),
  ];
  return el(
    "div",
    { class: "episode" },
    el(
      "p",
      { class: "figures" },
      el("span", null, el("b", null, number(own.calls)), " calls"),
      el("span", null, el("b", null, number(own.tokens_trained)), " tokens trained"),
      own.tokens_untrained > 0 && el("span", null, el("b", null, number(own.tokens_untrained)), " not trained"),
      el("span", null, el("b", null, number(own.model_seconds)), " s waiting for the policy"),
      el("span", null, el("b", null, number(own.own_seconds)), " s of its own"),
    ),
    calls,
    end,
  );
};
