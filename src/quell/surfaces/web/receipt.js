/* A receipt for people: the verdict first, then who was there and how each ended. Survivors are named and red. */

import { el } from "./dom.js";
import { command, count, seconds } from "./words.js";

const PHASES = [
  ["tasks", "tasks"],
  ["ask", "SIGTERM"],
  ["kill", "SIGKILL"],
];
const PARTS = [
  ["tasks", "task"],
  ["closers", "closer"],
  ["requests", "request"],
  ["threads", "thread"],
];
const SHOWN = 8; // processes that are listed before the rest is folded

export function verdict(confirmed) {
  return el(
    "strong",
    { class: "verdict", data: { confirmed: confirmed ? "yes" : "no" } },
    confirmed ? "confirmed" : "unconfirmed",
  );
}

/* One line: what a stop found. */
export function summary(receipt) {
  const survivors = listed(receipt.survivors).length;
  const processes = listed(receipt.processes).length;
  if (survivors) return `${count(survivors, "process survives", "processes survive")}`;
  const left = PARTS.flatMap(([name, word]) =>
    listed(receipt[name])
      .filter((one) => one.end === "alive")
      .map(() => word),
  );
  if (left.length) return `${count(left.length, left[0])} would not end`;
  if (!receipt.confirmed) return "what is left is not known";
  return processes ? `${count(processes, "process", "processes")} ended, nobody is left` : "nobody is left";
}

/* The whole of it. `words` stand beside the verdict: what was stopped. */
export function receiptPanel(receipt, words = "", shown = SHOWN) {
  const confirmed = receipt.confirmed === true;
  const total = number(receipt.phases?.total);
  return el(
    "article",
    {
      class: "receipt",
      data: { confirmed: confirmed ? "yes" : "no" },
      "aria-label": `Receipt${words && `: ${words}`}`,
    },
    el(
      "header",
      {},
      verdict(confirmed),
      el("span", { class: "found" }, summary(receipt)),
      words && el("span", { class: "what" }, words),
      el("span", { class: "took num" }, seconds(total)),
    ),
    survivorsOf(receipt),
    phasesOf(receipt),
    processesOf(receipt, shown),
    PARTS.map(([name, word]) => partsOf(receipt, name, word)),
    el(
      "footer",
      {},
      [
        receipt.reason && `reason: ${receipt.reason}`,
        receipt.rung && receipt.rung !== "none" && `contained by ${receipt.rung}`,
      ]
        .filter(Boolean)
        .join(" · "),
    ),
  );
}

function survivorsOf(receipt) {
  const survivors = listed(receipt.survivors);
  if (!survivors.length) return null;
  const names = new Map(listed(receipt.processes).map((one) => [one.pid, one.argv]));
  return el(
    "ul",
    { class: "survivors", "aria-label": "Still alive" },
    survivors.map((pid) =>
      el(
        "li",
        {},
        el("span", { class: "pid num" }, String(pid)),
        el("code", {}, command(listed(names.get(pid))) || "?"),
        el("span", { class: "end" }, "alive"),
      ),
    ),
  );
}

function phasesOf(receipt) {
  const phases = receipt.phases ?? {};
  const known = PHASES.filter(([name]) => number(phases[name]) > 0);
  if (!known.length) return null;
  const bar = el("div", {
    class: "phases",
    role: "img",
    "aria-label": known.map(([name, word]) => `${word} ${seconds(phases[name])}`).join(", "),
  });
  for (const [name, word] of known) {
    const piece = el("span", { data: { phase: name } }, `${word} ${seconds(phases[name])}`);
    piece.style.flexGrow = String(100 * Math.max(0.12, phases[name] / Math.max(0.001, number(phases.total))));
    bar.append(piece);
  }
  return bar;
}

function processesOf(receipt, shown) {
  const survivors = new Set(listed(receipt.survivors));
  const ended = listed(receipt.processes).filter((one) => !survivors.has(one.pid));
  if (!ended.length) return null;
  const most = ended.length > shown + 1 ? shown : ended.length;
  const first = ended.slice(0, most);
  const rest = ended.slice(most);
  return el(
    "div",
    { class: "ended" },
    table(first),
    rest.length > 0 && el("details", {}, el("summary", {}, `${rest.length} more`), table(rest)),
  );
}

function table(processes) {
  const rows = processes.map((one) =>
    el(
      "tr",
      { data: { alive: one.end === "alive" ? "yes" : "no" } },
      el("td", { class: "pid num" }, String(one.pid)),
      el("td", {}, el("code", {}, one.argv ? command(listed(one.argv)) : "?")),
      el("td", { class: "end" }, String(one.end)),
      el("td", { class: "num" }, seconds(number(one.at))),
    ),
  );
  return el(
    "table",
    {},
    el(
      "thead",
      { class: "unseen" },
      el(
        "tr",
        {},
        ["pid", "command", "end", "after"].map((word) => el("th", { scope: "col" }, word)),
      ),
    ),
    el("tbody", {}, rows),
  );
}

function partsOf(receipt, name, word) {
  const parts = listed(receipt[name]);
  if (!parts.length) return null;
  const alive = parts.filter((one) => one.end === "alive");
  const lines = parts.map((one) =>
    el(
      "li",
      { data: { alive: one.end === "alive" ? "yes" : "no" } },
      el("span", {}, one.name),
      el("span", { class: "end" }, one.end),
      one.where && el("code", {}, one.where),
    ),
  );
  const said = alive.length ? `${count(parts.length, word)}, ${alive.length} alive` : count(parts.length, word);
  return el("details", { class: "parts", open: alive.length > 0 }, el("summary", {}, said), el("ul", {}, lines));
}

const listed = (value) => (Array.isArray(value) ? value : []);
const number = (value) => (typeof value === "number" ? value : 0);
