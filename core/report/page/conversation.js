// What was said in a rollout: the prompt, and what the policy and its environment answered in turn.

import { bare, direction, el, inPieces, known, number, quoted, signed, spelled } from "./dom.js";

/** @import { Message, Run, Texts } from "./data.js" */
/** @import { Child } from "./dom.js" */

const SHOWN_AS = bare({ user: "user", assistant: "policy", system: "system", tool: "tool" });

/** @param {Message} own @param {{ title?: string, note?: Child[], body?: Node }} [props] */
export const message = ({ role, content, ...rest }, props) => {
  const others = Object.entries(rest).filter(([, value]) => known(value) && value !== "");
  return el(
    "div",
    { class: `message ${["user", "assistant", "system", "tool"].includes(role) ? role : "other"}` },
    el(
      "div",
      { class: "role" },
      ...spelled(props?.title ?? SHOWN_AS[role] ?? String(role)),
      props?.note?.map((note) => note && el("span", { class: "turn-reward" }, note)),
    ),
    props?.body ?? quoted(typeof content === "string" ? content : JSON.stringify(content ?? "", null, 1)),
    others.map(([name, value]) =>
      el(
        "div",
        { class: "call" },
        el("span", { class: "role" }, ...spelled(name)),
        quoted(typeof value === "string" ? value : JSON.stringify(value, null, 1)),
      ),
    ),
  );
};

/** @param {Run} run @param {Texts} texts */
export const prompt = (run, texts) => {
  const body = el("div");
  const asMessages = () => {
    body.replaceChildren();
    inPieces(body, texts.prompt, (own) => message(own));
  };
  const asSeen = () => body.replaceChildren(quoted(texts.seen ?? "", { class: "seen" }));
  const why = run.unseen ?? "the schemas of its tools stood in it too, and they are not recorded";
  const button = el(
    "button",
    {
      "aria-pressed": "false",
      disabled: texts.seen === null,
      title: texts.seen === null ? `Not known here: ${why}` : null,
      onclick: () => {
        const seen = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(seen));
        (seen ? asSeen : asMessages)();
      },
    },
    "as the model saw it",
  );
  asMessages();
  const heading = texts.episode ? ["Task, as the agent was given it"] : ["Prompt", button];
  return el("section", { class: "part" }, el("h3", null, heading), body);
};

// What the policy said, and what it was told in between.
/** @param {Texts} texts */
export const conversation = (texts) => {
  if (texts.messages.length <= 1) return [quoted(texts.completion)];
  const rewards = texts.turnRewards ?? (Array.isArray(texts.info?.rewards) ? texts.info.rewards : []);
  const advantages = texts.turnAdvantages ?? [];
  let turn = 0;
  /** @param {Message} own */
  const said = (own) => {
    if (own.role !== "assistant") return message(own, { title: own.role === "tool" ? "tool" : "environment" });
    const note = [
      turn < rewards.length && `reward ${number(rewards[turn])}`,
      turn < advantages.length && [
        "advantage ",
        el("b", { class: direction(advantages[turn]) }, signed(advantages[turn])),
      ],
    ];
    turn += 1;
    return message(own, { title: `turn ${turn}`, note });
  };
  return [inPieces(el("div"), texts.messages, said)];
};
