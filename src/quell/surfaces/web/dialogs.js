/* Questions to a person: a new session, a name, a last word before something is removed.

They cover everything but the bar: Stop All can be pressed while one is open. */

import { get, post } from "./api.js";
import { button, el, show } from "./dom.js";

/* A dialog with a form; `work` gets its fields. It closes when that returns, and shows the words of what it throws. */
function ask(title, fields, words, work, tone = "send") {
  return new Promise((give) => {
    const wrong = el("p", { class: "wrong", role: "alert", hidden: true });
    const go = el("button", { type: "submit", class: tone }, words);
    const form = el(
      "form",
      { method: "dialog" },
      el("h2", {}, title),
      fields,
      wrong,
      el(
        "footer",
        {},
        button("Cancel", () => node.close(), { class: "quiet" }),
        go,
      ),
    );
    const node = el("dialog", { "aria-label": title, onclose: () => give(null) }, form);
    form.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      show(wrong, false);
      try {
        give(await work(Object.fromEntries(new FormData(form))));
        node.close();
      } catch (fault) {
        wrong.textContent = fault.message;
        show(wrong, true);
        go.disabled = false;
      }
    });
    open(node);
  });
}

function open(node) {
  const before = document.activeElement;
  const shade = el("div", { class: "shade", onclick: () => node.close() });
  node.addEventListener("close", () => {
    shade.remove();
    node.remove();
    before?.focus?.();
  });
  document.body.append(shade, node);
  node.show();
}

function field(label, input, hint = "") {
  return el("label", {}, el("span", {}, label), input, hint && el("small", {}, hint));
}

/* The card of the session that was opened, or null. */
export function askNew({ text = "", cwd = "", agent = "" } = {}) {
  const agents = el(
    "select",
    { name: "agent", autofocus: !text },
    el("option", { value: agent }, agent || "…"),
  );
  get("agents").then(
    (answer) => {
      const chosen = agents.value || answer.default;
      agents.replaceChildren(
        ...answer.agents.map((one) =>
          el(
            "option",
            { value: one.name },
            [one.name, ...[one.harness || one.model].filter((by) => by && by !== one.name)].join(" · "),
          ),
        ),
      );
      if (answer.agents.some((one) => one.name === chosen)) agents.value = chosen;
    },
    () => {},
  );
  const message = el("textarea", { name: "text", rows: 4, placeholder: "What is to be done", autofocus: text !== "" });
  message.value = text;
  const fields = [
    el(
      "div",
      { class: "pair" },
      field("Agent", agents),
      field("Title", el("input", { name: "title", maxlength: 500, placeholder: "optional" })),
    ),
    field(
      "Folder",
      el("input", { name: "cwd", value: cwd, placeholder: "the server's own", spellcheck: "false", class: "mono" }),
    ),
    field("First message", message, "A line that begins with $ is run as a command."),
  ];
  return ask("New session", fields, "Start", (given) => post("sessions", given));
}

export function askName(title) {
  const input = el("input", { name: "title", value: title, maxlength: 500, autofocus: true });
  return ask("Rename", [field("Title", input)], "Rename", (given) => given.title);
}

export function askSure(title, words, act, work) {
  return ask(title, [el("p", {}, words)], act, work, "danger");
}

const KEYS = [
  ["Esc", "stop the turn of the open session"],
  ["/", "write a message"],
  ["n", "new session"],
  ["↑ ↓ or k j", "walk through the sessions"],
  ["Enter", "open the session, or send the message"],
  ["Shift Enter", "a new line"],
  ["s", "stop the session that has the focus"],
  ["h", "overview: processes and receipts"],
  ["t", "light, dark, or as the system has it"],
  ["?", "this list"],
];

export function showKeys() {
  const rows = KEYS.map(([key, words]) =>
    el(
      "tr",
      {},
      el(
        "th",
        { scope: "row" },
        key.split(" ").map((one) => (one === "or" ? " or " : el("kbd", {}, one))),
      ),
      el("td", {}, words),
    ),
  );
  const node = el(
    "dialog",
    { "aria-label": "Keyboard" },
    el(
      "form",
      { method: "dialog" },
      el("h2", {}, "Keyboard"),
      el("table", { class: "keys" }, el("tbody", {}, rows)),
      el("footer", {}, el("button", { class: "quiet", autofocus: true }, "Close")),
    ),
  );
  open(node);
}
