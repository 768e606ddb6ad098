/* The page: puts its parts together, follows the address, and hands every word of the server to whom it belongs. */

import { actsOf } from "./acts.js";
import { get } from "./api.js";
import { Board } from "./board.js";
import { Cards } from "./cards.js";
import { showKeys } from "./dialogs.js";
import { button, icon, say, SHAPES, show } from "./dom.js";
import { soon } from "./frames.js";
import { Halt } from "./halt.js";
import { Health } from "./health.js";
import { Notices } from "./notices.js";
import { Overview } from "./overview.js";
import { SessionView } from "./session.js";
import { ALL, Stops } from "./stops.js";
import { Stream } from "./stream.js";
import { count, nameOf } from "./words.js";

const GRACE = 600; // milliseconds that a lost connection may come back in before anything is said
const at = (id) => document.getElementById(id);

const board = new Board();
const notices = new Notices(at("banners"), at("toasts"), at("announcer"));
const stops = new Stops(board);
const health = new Health(board, notices);
const stream = new Stream(heard, connection);
const go = (id) => (location.hash = id ? `#/s/${encodeURIComponent(id)}` : "#/");
const acts = actsOf({ board, notices, go, stops });
const page = { board, notices, stops, stream, acts };
const cards = new Cards(at("cards"), board, stops);
const halt = new Halt(at("stop-all"), at("halt"), page);

let view = null; // what the main part shows
let changed = new Set();
let saidLost = 0;
let was = new Map(); // states that were announced

// -- what comes from the server

function heard(message) {
  if (message.type === "events") return view instanceof SessionView && view.take(message);
  if (message.type === "snapshot" || message.type === "cards") board.take(message);
}

function connection({ live, bye, refused, offline }) {
  clearTimeout(saidLost);
  if (live) {
    notices.banner("connection", "");
    health.look();
    for (const stop of stops.all.values()) stop.wake?.();
    return;
  }
  const now = button("Try now", () => stream.now(), { class: "small" });
  const words = refused
    ? `This browser is not let in any more: ${refused} Run quell open for a new link.`
    : bye
      ? `The server has stopped: ${bye}. This page comes back when it does.`
      : offline
        ? "There is no network. Reconnecting when there is."
        : "The connection is lost. Reconnecting…";
  saidLost = setTimeout(
    () => notices.banner("connection", words, { tone: "warn", actions: [now] }),
    refused || bye ? 0 : GRACE,
  );
}

board.onchange((ids) => {
  for (const id of ids) changed.add(id);
  stops.tidy();
  stops.watch();
  soon(draw);
});

stops.onchange((stop) => {
  if (stop.over && stop.inTalk && !stop.over.failed) return stops.dismiss(stop.key);
  if (stop.over?.failed && stop.key !== ALL && view?.id !== stop.key) notices.toast(stop.fault);
  if (stop.key === ALL) board.cards.forEach((card) => changed.add(card.id));
  else changed.add(stop.key);
  soon(draw);
});

// -- what is shown

function draw() {
  const ids = changed;
  changed = new Set();
  const running = board.running();
  const processes = board.processes().length;
  cards.draw(ids);
  halt.draw();
  if (view instanceof SessionView && board.known && view.loaded && !board.cards.has(view.id)) {
    notices.toast("This session was deleted.", "");
    go("");
  }
  view?.draw();
  const facts = [running.length ? `${running.length} running` : "idle", processes && count(processes, "command")];
  say(at("pulse"), board.known ? facts.filter(Boolean).join(" · ") : "");
  at("pulse").dataset.live = running.length ? "yes" : "no";
  show(at("gate"), board.known && !board.admission.open);
  at("gate").title = board.admission.reason;
  show(at("no-cards"), board.known && board.cards.size === 0);
  const open = view instanceof SessionView ? board.cards.get(view.id) : undefined;
  const title = [open && nameOf(open), "Quell"].filter(Boolean).join(" – ");
  document.title = running.length ? `(${running.length}) ${title}` : title;
  tell(ids);
}

/* What somebody who does not see the page wants to know. */
function tell(ids) {
  for (const id of ids) {
    const card = board.cards.get(id);
    const before = was.get(id);
    if (!card) was.delete(id);
    else was.set(id, card.state);
    if (!card || before === undefined || before === card.state) continue;
    const outcome = card.end === "stopped" ? `stopped, ${card.confirmed ? "confirmed" : "unconfirmed"}` : card.end;
    if (card.state === "asking") notices.announce(`${nameOf(card)} asks for approval`);
    else if (card.state === "idle") notices.announce(`${nameOf(card)}: ${outcome}`);
  }
}

function route() {
  const [, kind, id] = location.hash.match(/^#\/(s)\/(.+)$/) ?? [];
  let name = "";
  try {
    name = kind ? decodeURIComponent(id) : "";
  } catch {
    name = "";
  }
  view?.leave();
  view = name ? new SessionView(name, page) : new Overview(page);
  document.body.dataset.view = name ? "session" : "overview";
  stream.follow("", 0);
  at("main").replaceChildren(view.node);
  cards.select(name);
  if (name) view.load();
  soon(draw);
}

// -- what a person does

const THEMES = { "": ["auto", "as the system has it"], light: ["sun", "light"], dark: ["moon", "dark"] };

function theme(next) {
  const root = document.documentElement;
  if (next === "") delete root.dataset.theme;
  else root.dataset.theme = next;
  const [shape, words] = THEMES[next];
  at("theme").replaceChildren(icon(SHAPES[shape]));
  at("theme").setAttribute("aria-label", `Theme: ${words}`);
  at("theme").title = `Theme: ${words}`;
  try {
    localStorage.setItem("quell.theme", next);
  } catch {
    // it lasts as long as the page
  }
}

function nextTheme() {
  const names = Object.keys(THEMES);
  theme(names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length]);
}

function key(event) {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  const dialog = document.querySelector("dialog[open]");
  if (dialog) return void (event.key === "Escape" && dialog.close());
  if (event.key === "Escape") return void (view instanceof SessionView && view.escape());
  if (event.target.closest("input, textarea, select, [contenteditable]")) return;
  const work = {
    "/": () => at("composer")?.focus(),
    n: () => acts.open(),
    h: () => go(""),
    t: nextTheme,
    "?": showKeys,
    j: () => at("cards").querySelector("a.name")?.focus(),
  }[event.key];
  if (!work) return;
  event.preventDefault();
  work();
}

at("new").addEventListener("click", () => acts.open());
at("reopen").addEventListener("click", () => acts.reopen());
at("theme").addEventListener("click", nextTheme);
at("keys").addEventListener("click", showKeys);
at("skip").addEventListener("click", () => at("main").focus());
addEventListener("keydown", key);
addEventListener("hashchange", route);
theme(document.documentElement.dataset.theme ?? "");
route();
stream.open();
health.look();
get("config").then(
  ({ settings }) => Object.assign(stops.ladder, { ask: settings.ask ?? 2, term: settings.term ?? 5 }),
  () => {},
);
