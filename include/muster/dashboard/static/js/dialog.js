/**
 * A question before something is changed: what it does, what it needs to know, and why it is done.
 *
 * The browser's own <dialog> keeps the focus inside, closes on Escape, and gives the focus back.
 */

import { fill, h, uniqueId } from "./dom.js";

/**
 * @typedef {object} Field
 * @property {string} name
 * @property {string} label
 * @property {string} [value]
 * @property {string[]} [choices] a list to choose from
 * @property {string[]} [suggestions] what may be typed, among others
 * @property {string} [hint]
 * @property {boolean} [flag] a checkbox
 * @property {boolean} [optional] it may be left empty
 * @property {boolean} [options] with a second input for options as JSON, named `[name]-options`
 */

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {(HTMLElement | string)[]} happens what will happen, one paragraph each
 * @property {Field[]} [fields]
 * @property {string} confirm what the button that does it says
 * @property {boolean} [danger]
 * @property {(values: Record<string, string>) => Promise<HTMLElement | string | null>} [foresee]
 *   what it would do; asked again when a field changes
 * @property {(values: Record<string, string>) => Promise<void>} act `values` has the fields and `reason`; what it
 *   throws is shown in the dialog, which stays open
 */

/** Ask, and act if the user confirms. Resolves when the dialog is closed: true if it was done. */
export function ask(/** @type {Question} */ question) {
  const id = uniqueId("dialog");
  const error = h("p", { class: "error", role: "alert" });
  const foreseen = h("div", { class: "foreseen", "aria-live": "polite" });
  const reason = h("textarea", { id: `${id}-reason`, name: "reason", rows: 2, required: true, maxlength: 500, "aria-describedby": `${id}-hint` });
  const confirm = h("button", { type: "submit", class: `button ${question.danger ? "danger" : "primary"}`, text: question.confirm });
  const fields = (question.fields ?? []).map((field) => fieldOf(field, id));
  const form = h(
    "form", { novalidate: true },
    h("h2", { id: `${id}-title`, text: question.title }),
    h("div", { class: "happens", id: `${id}-happens` }, question.happens.map((one) => (typeof one === "string" ? h("p", { text: one }) : one)), foreseen),
    fields,
    h("div", { class: "field" }, h("label", { for: `${id}-reason`, text: "Reason" }), reason,
      h("p", { class: "hint", id: `${id}-hint`, text: "Goes into the audit, with your name." })),
    error,
    h("div", { class: "buttons" },
      h("button", { type: "button", class: "button plain", text: "Cancel", onclick: () => dialog.close() }), confirm),
  );
  const dialog = h("dialog", { "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-happens` }, form);
  let done = false;
  let asked = 0;

  const values = () => Object.fromEntries([...new FormData(form)].map(([name, value]) => [name, String(value).trim()]));
  const foresee = async () => {
    if (!question.foresee) return;
    const turn = (asked += 1);
    fill(foreseen, h("p", { class: "muted", text: "Asking what it would do …" }));
    const seen = await question.foresee(values()).catch((/** @type {Error} */ why) => h("p", { class: "error", text: `What it would do is not known: ${why.message}` }));
    if (turn === asked) fill(foreseen, typeof seen === "string" ? h("p", { text: seen }) : seen);
  };
  form.addEventListener("change", (event) => {
    if (event.target !== reason) foresee();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const missing = [...form.elements].find((one) => one instanceof HTMLElement && "value" in one && one.matches("[required]") && !String(one.value).trim());
    if (missing instanceof HTMLElement) {
      const label = form.querySelector(`label[for="${missing.id}"]`)?.textContent ?? "a field";
      error.textContent = missing === reason ? "Give a reason: it is kept in the audit." : `${label} is empty: fill it in.`;
      missing.setAttribute("aria-invalid", "true");
      missing.focus();
      return;
    }
    confirm.disabled = true;
    error.textContent = "";
    try {
      await question.act(values());
      done = true;
      dialog.close();
    } catch (why) {
      error.textContent = why instanceof Error ? why.message : String(why);
    } finally {
      confirm.disabled = false;
    }
  });
  document.body.append(dialog);
  dialog.showModal();
  const first = form.querySelector("input, select, textarea");
  if (first instanceof HTMLElement) first.focus();
  foresee();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(done);
    });
  });
}

/** @param {Field} field @param {string} id */
function fieldOf(field, id) {
  if (field.flag) return h("div", { class: "field flag" }, h("label", {}, h("input", { type: "checkbox", name: field.name, checked: field.value === "on" }), ` ${field.label}`), field.hint ? h("p", { class: "hint", text: field.hint }) : null);
  const own = `${id}-${field.name}`;
  const list = field.suggestions?.length ? h("datalist", { id: `${own}-list` }, field.suggestions.map((value) => h("option", { value }))) : null;
  const props = { id: own, name: field.name, required: !field.optional, "aria-describedby": field.hint ? `${own}-hint` : null };
  const input = field.choices
    ? h("select", props, field.choices.map((value) => h("option", { value, text: value, selected: value === field.value })))
    : h("input", { ...props, type: "text", value: field.value ?? "", list: list ? `${own}-list` : null, autocomplete: "off", spellcheck: "false" });
  return h("div", { class: "field" }, h("label", { for: own, text: field.label }), input, list,
    field.options ? h("input", { type: "text", name: `${field.name}-options`, "aria-label": `Options of the ${field.label.toLowerCase()}`, placeholder: '{"budget": 10}', autocomplete: "off", spellcheck: "false" }) : null,
    field.hint ? h("p", { class: "hint", id: `${own}-hint`, text: field.hint }) : null);
}
