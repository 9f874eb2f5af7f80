// What a person says of a run, and the end of one: a run in, dialogs out whose answers go to the server.

import { el, messageOf, spelled } from "./dom.js";

/** @import { Child } from "./dom.js" */
/** @typedef {{ name: string, tags: string[], note: string, hidden: boolean }} Labelled run */

/** @param {string} what @param {object} value */
const send = async (what, value) => {
  const answer = await fetch(what, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(value),
  });
  if (!answer.ok) throw new Error((await answer.json()).error);
};

// may: whether the form can be sent as it is now.
/**
 * @param {string} title
 * @param {Child} fields
 * @param {string} done
 * @param {() => Promise<void>} act
 * @param {() => boolean} [may]
 */
const dialog = (title, fields, done, act, may = () => true) => {
  const trouble = el("p", { class: "failure", role: "alert" });
  const submit = el("button", { type: "submit", disabled: !may() }, done);
  /** @type {HTMLDialogElement} */
  const node = el(
    "dialog",
    { class: "change", "aria-label": title, onclose: () => node.remove() },
    el(
      "form",
      {
        method: "dialog",
        oninput: () => {
          submit.disabled = !may();
        },
        onsubmit: async (event) => {
          event.preventDefault();
          try {
            await act();
            node.close();
          } catch (error) {
            trouble.textContent = messageOf(error);
          }
        },
      },
      el("h2", null, ...spelled(title)),
      fields,
      trouble,
      el("div", { class: "actions" }, submit, el("button", { onclick: () => node.close() }, "Cancel")),
    ),
  );
  document.body.append(node);
  node.showModal();
};

/** @param {Labelled} run @param {() => Promise<void>} changed */
export const labelDialog = (run, changed) => {
  const tags = el("input", { type: "text", value: run.tags.join(", ") });
  const note = el("textarea", { rows: 5, value: run.note });
  const hidden = el("input", { type: "checkbox", checked: run.hidden });
  dialog(
    `Label ${run.name}`,
    [
      el("label", { class: "field" }, el("span", null, "Tags, with commas between"), tags),
      el("label", { class: "field" }, el("span", null, "Note"), note),
      el("label", null, hidden, " hide it from the list"),
    ],
    "Save",
    async () => {
      const named = tags.value.split(",").filter((tag) => tag.trim());
      await send("label", { run: run.name, tags: named, note: note.value, hidden: hidden.checked });
      await changed();
    },
  );
};

/** @param {Labelled} run @param {() => Promise<void>} changed */
export const deleteDialog = (run, changed) => {
  const typed = el("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  dialog(
    `Delete ${run.name}`,
    [
      el("p", null, "The run goes with its rollouts, checkpoints and model, and cannot be brought back."),
      el("label", { class: "field" }, el("span", null, "Its name, to confirm"), typed),
    ],
    "Delete for good",
    async () => {
      await send("delete", { run: run.name, confirmed: typed.value });
      await changed();
    },
    () => typed.value === run.name,
  );
};
