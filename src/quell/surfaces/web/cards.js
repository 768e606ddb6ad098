/* Sessions as cards, sub-agents below their parents. A card stays where it is: nothing moves away under the pointer. */

import { atWork, isLive } from "./board.js";
import { button, el, say, show } from "./dom.js";
import { everySecond } from "./frames.js";
import { summary } from "./receipt.js";
import { ago, command, count, folder, moment, nameOf, span, tenths } from "./words.js";

const PROCESSES = 3; // lines of processes on a card
const LINES = 2; // of its last output

export class Cards {
  constructor(root, board, stops) {
    this.root = root;
    this.board = board;
    this.stops = stops;
    this.views = new Map();
    this.open = "";
    root.addEventListener("keydown", (event) => this.walk(event));
    everySecond(() => this.views.forEach((view) => view.tick()));
  }

  draw(changed) {
    for (const id of changed) {
      const card = this.board.cards.get(id);
      if (card) this.view(id).draw(card);
      else this.drop(id);
    }
    this.arrange(this.root, this.board.roots());
  }

  view(id) {
    if (!this.views.has(id)) this.views.set(id, new CardView(id, this.stops));
    return this.views.get(id);
  }

  drop(id) {
    this.views.get(id)?.node.remove();
    this.views.delete(id);
  }

  arrange(list, cards) {
    let at = list.firstElementChild;
    for (const card of cards) {
      const view = this.view(card.id);
      if (view.node === at) at = at.nextElementSibling;
      else list.insertBefore(view.node, at);
      const children = this.board.children(card.id);
      const over = children.filter((one) => one.state === "closed");
      this.arrange(
        view.below,
        children.filter((one) => one.state !== "closed"),
      );
      this.arrange(view.finished, over);
      say(view.folded, `${count(over.length, "finished sub-agent")}`);
      show(view.fold, over.length > 0);
      show(view.below, view.below.childElementCount > 0);
    }
  }

  select(id) {
    for (const one of new Set([this.open, id])) {
      const link = this.views.get(one)?.link;
      if (one === id) link?.setAttribute("aria-current", "page");
      else link?.removeAttribute("aria-current");
    }
    this.open = id;
    this.views.get(id)?.node.closest("details")?.setAttribute("open", "");
  }

  draws(key) {
    const view = this.views.get(key);
    const card = this.board.cards.get(key);
    if (view && card) view.draw(card);
  }

  walk(event) {
    const links = [...this.root.querySelectorAll("a.name")].filter((link) => link.checkVisibility());
    const here = links.indexOf(event.target.closest("li")?.querySelector("a.name"));
    if (here < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    if (step) links[Math.min(links.length - 1, Math.max(0, here + step))].focus();
    else if (event.key === "Home") links[0].focus();
    else if (event.key === "End") links.at(-1).focus();
    else if (event.key === "s") links[here].closest("li").querySelector("button.stop:not([hidden])")?.click();
    else return;
    event.preventDefault();
  }
}

class CardView {
  constructor(id, stops) {
    this.id = id;
    this.stops = stops;
    this.dot = el("span", { class: "dot" });
    this.link = el("a", { class: "name", href: `#/s/${encodeURIComponent(id)}` });
    this.state = el("span", { class: "state" });
    this.place = el("span");
    this.where = el("p", { class: "where" }, this.state, this.place);
    this.last = el("p", { class: "last" });
    this.processes = el("ul", { class: "processes", "aria-label": "Live processes" });
    this.facts = el("p", { class: "facts" });
    this.stop = button("Stop", () => stops.button(id), { class: "stop" });
    this.below = el("ul", { class: "below", "aria-label": "Sub-agents" });
    this.finished = el("ul", { class: "below" });
    this.folded = el("summary");
    this.fold = el("details", { class: "finished", hidden: true }, this.folded, this.finished);
    this.node = el(
      "li",
      {},
      el(
        "article",
        { class: "card" },
        el("header", {}, this.dot, this.link, this.stop),
        this.where,
        this.last,
        this.processes,
        this.facts,
      ),
      this.below,
      this.fold,
    );
  }

  draw(card) {
    this.card = card;
    const name = nameOf(card);
    say(this.link, name);
    this.link.title = moment(card.opened);
    this.node.firstElementChild.dataset.state = card.state;
    say(this.place, ["", card.agent, folder(card.cwd)].join(" · "));
    this.where.title = card.cwd;
    const lines = (card.last || card.asked).split("\n").filter((line) => line.trim());
    say(this.last, lines.slice(-LINES).join("\n"));
    this.last.dataset.lines = lines.length > 1 ? "many" : "one";
    show(this.last, this.last.textContent !== "" && this.last.textContent !== name);
    this.drawProcesses(card);
    this.drawFacts(card);
    this.drawStop(card, name);
    this.tick();
  }

  drawProcesses(card) {
    const shown = card.processes.slice(0, PROCESSES);
    const more = card.processes.length - shown.length;
    this.processes.replaceChildren(
      ...shown.map((one) => {
        const time = el("span", { class: "num" });
        time.dataset.since = one.since;
        const words = command(one.argv);
        return el(
          "li",
          { title: words },
          el("span", { class: "pid num" }, String(one.pid)),
          el("code", {}, words),
          one.background && el("span", { class: "tag" }, "bg"),
          time,
        );
      }),
      ...(more > 0 ? [el("li", { class: "more" }, `and ${more} more`)] : []),
    );
    show(this.processes, card.processes.length > 0);
  }

  drawFacts(card) {
    const parked = card.queue.filter((one) => one.parked).length;
    const waiting = card.queue.length - parked;
    const facts = [];
    if (card.approvals.length)
      facts.push(
        el("span", { data: { tone: "ask" } }, count(card.approvals.length, "approval wanted", "approvals wanted")),
      );
    if (waiting) facts.push(el("span", {}, `${waiting} waiting`));
    if (parked) facts.push(el("span", {}, `${parked} parked`));
    const answer = this.stops.of(this.id)?.over;
    if (answer?.receipt) facts.push(verdictOf(answer.confirmed, summary(answer.receipt)));
    else if (card.stopped && (!card.confirmed || (card.halted === card.turn && !isLive(card))))
      facts.push(verdictOf(card.confirmed, ""));
    else if (card.end && card.end !== "completed" && !isLive(card))
      facts.push(el("span", { data: { tone: card.end === "failed" ? "wrong" : "" } }, card.end));
    this.facts.replaceChildren(...facts);
    show(this.facts, facts.length > 0);
  }

  drawStop(card, name) {
    const stop = this.stops.underway(this.id);
    const going = this.stops.since(this.id) !== undefined;
    say(this.stop, stop?.forced ? "Forced" : going ? "Force" : "Stop");
    this.stop.dataset.quiet = atWork(card) || going ? "no" : "yes";
    this.stop.disabled = stop?.forced === true;
    this.stop.setAttribute("aria-label", `${going ? "Force the stop of" : "Stop"} ${name}`);
    if (stop) this.node.firstElementChild.dataset.state = "stopping";
  }

  tick() {
    const card = this.card;
    const stop = this.stops.underway(this.id);
    const now = Date.now() / 1000;
    if (stop) say(this.state, `stopping ${tenths((performance.now() - stop.since) / 1000)}`);
    else if (this.stops.of(this.id)?.over?.receipt) say(this.state, "stopped");
    else if (isLive(card)) say(this.state, card.state);
    else say(this.state, card.state === "closed" ? "closed" : ago(card.changed));
    for (const time of this.processes.querySelectorAll("[data-since]")) say(time, span(now - time.dataset.since));
  }
}

function verdictOf(confirmed, words) {
  return el(
    "span",
    { class: "verdict", data: { confirmed: confirmed ? "yes" : "no" }, title: words },
    confirmed ? "stop confirmed" : "stop unconfirmed",
  );
}
