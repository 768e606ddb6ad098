/* One session, opened: its conversation, what runs, its receipts, its queue, and where one writes to it. */

import { get, session as path } from "./api.js";
import { isLive } from "./board.js";
import { Composer } from "./composer.js";
import { button, el, icon, say, SHAPES, show } from "./dom.js";
import { everySecond, soon } from "./frames.js";
import { StopStrip } from "./ladder.js";
import { menu } from "./menu.js";
import { Processes } from "./processes.js";
import { Queue } from "./queue.js";
import { Slips } from "./slips.js";
import { Talk } from "./talk.js";
import { count, folder, nameOf } from "./words.js";

const SLICE = 12; // milliseconds of work in one frame while a long conversation is put together

export class SessionView {
  constructor(id, page) {
    this.id = id;
    this.page = page;
    this.pending = [];
    this.loaded = false;
    this.gone = false;
    this.linked = new Set();
    this.sticky = true;
    this.stopped = 0;
    this.build();
    this.quit = everySecond(() => this.tick());
  }

  build() {
    const { id, page } = this;
    this.title = el("h1", { id: "title", tabindex: "-1" });
    this.state = el("span", { class: "state" });
    this.where = el("p", { class: "where" });
    this.stop = button("Stop", () => page.stops.button(id), {
      class: "stop",
      title: "Ends everything of this session: turn, background commands, sub-agents",
    });
    this.turnStop = button("Stop turn", () => page.stops.press(id, { reach: "turn" }), {
      class: "turn-stop",
      title: "Ends the turn; background commands live on (Esc)",
    });
    this.turnStop.append(el("kbd", {}, "Esc"));
    this.facts = button("", () => this.toggleAside(), { class: "small facts", "aria-expanded": "false" });
    this.scroller = el("div", {
      class: "scroller",
      tabindex: "0",
      "aria-label": "Conversation",
      onscroll: () => this.scrolled(),
    });
    this.observer = new IntersectionObserver((seen) => this.neared(seen), {
      root: this.scroller,
      rootMargin: "900px 0px",
    });
    this.works = new WeakMap();
    this.talk = new Talk(id, {
      notices: page.notices,
      near: (node, work) => (this.works.set(node, work), this.observer.observe(node)),
      fork: (upto) => page.acts.fork(id, upto),
      onreceipt: (event) => this.receipt(event),
    });
    this.loading = el("p", { class: "nothing loading" }, "Loading…");
    this.latest = button("Latest", () => this.bottom(true), { class: "latest", hidden: true });
    this.scroller.append(this.loading, this.talk.node);
    this.queue = new Queue(id, page.notices);
    this.strip = new StopStrip(id, page.stops, page.board);
    this.composer = new Composer(id, page.notices, { onsent: () => this.sent(), reopen: page.acts.reopen });
    this.processes = new Processes(path(id, "/processes"), "Nothing runs.");
    this.slips = new Slips(`receipts?limit=30&session=${encodeURIComponent(id)}`, "It was not stopped yet.");
    this.aside = el(
      "aside",
      { class: "aside", "aria-label": "Processes and receipts" },
      el("h2", {}, "Processes"),
      this.processes.node,
      el("h2", {}, "Receipts"),
      this.slips.node,
    );
    this.sizes = new ResizeObserver(() => this.sticky && this.bottom(false));
    this.sizes.observe(this.scroller);
    this.sizes.observe(this.talk.node);
    this.node = el(
      "section",
      { class: "session", "aria-labelledby": "title" },
      el(
        "header",
        { class: "head" },
        el("a", { class: "back", href: "#/", "aria-label": "All sessions" }, icon(SHAPES.back)),
        el("div", { class: "names" }, el("div", { class: "line" }, this.title, this.state), this.where),
        this.facts,
        this.menu(),
        this.turnStop,
        this.stop,
      ),
      el("div", { class: "talks" }, this.scroller, this.latest),
      this.aside,
      el("footer", { class: "feet" }, this.strip.node, this.queue.node, this.composer.node),
    );
  }

  menu() {
    const { id, page } = this;
    return menu("Session", [
      ["Rename…", () => page.acts.rename(id)],
      ["Fork", () => page.acts.fork(id)],
      ["Restart", () => page.acts.restart(id), "Stops it, then lets it begin afresh"],
      ["Export as Markdown", () => page.acts.export(id, "markdown")],
      ["Export as JSONL", () => page.acts.export(id, "jsonl")],
      ["Delete…", () => page.acts.delete(id), "", "wrong"],
    ]);
  }

  /* History first; the stream goes on after its last event. */
  async load() {
    let events;
    try {
      ({ events } = await get(path(this.id, "/history")));
    } catch (fault) {
      say(this.loading, fault.message);
      if (!this.gone && (fault.unheard || fault.status === 503)) setTimeout(() => !this.gone && this.load(), 1500);
      return;
    }
    if (this.gone) return;
    await this.fold(events);
    if (this.gone) return;
    this.loaded = true;
    this.loading.remove();
    this.page.stream.follow(this.id, this.talk.cursor);
    this.link();
    this.bottom(true);
  }

  async fold(events) {
    this.talk.node.hidden = true;
    for (let at = 0; at < events.length;) {
      const until = performance.now() + SLICE;
      while (at < events.length && performance.now() < until) this.talk.take(events.slice(at, (at += 50)));
      if (at < events.length) await new Promise((go) => setTimeout(go, 0));
    }
    this.talk.node.hidden = false;
    this.talk.settle();
  }

  /* From the stream. */
  take(message) {
    if (!this.loaded) return;
    for (const event of message.events) if (event.session === this.id) this.pending.push(event);
    this.page.stream.seen(message.seq);
    soon((this.flush ??= () => this.work()));
  }

  work() {
    if (this.gone) return;
    const low = this.sticky;
    this.talk.take(this.pending.splice(0));
    this.link();
    if (low) this.bottom(false);
  }

  draw() {
    const { board, stops } = this.page;
    const card = board.cards.get(this.id);
    if (!card) return;
    const name = nameOf(card);
    say(this.title, name);
    this.node.dataset.state = stops.underway(this.id) ? "stopping" : card.state;
    say(this.state, this.node.dataset.state);
    const model = card.model !== card.agent && card.model;
    say(this.where, [card.agent, model, folder(card.cwd), card.origin && "fork"].filter(Boolean).join(" · "));
    this.where.title = `${card.cwd}\n${card.id}`;
    const going = stops.since(this.id) !== undefined;
    const forced = stops.underway(this.id)?.forced === true;
    say(this.stop, forced ? "Forced" : going ? "Force" : "Stop");
    this.stop.disabled = forced;
    show(this.turnStop, (card.state === "running" || card.state === "asking") && !going);
    say(this.facts, card.processes.length ? count(card.processes.length, "command") : "Details");
    this.queue.draw(card.queue, board.admission.open);
    this.composer.draw(card, board.admission.open);
    this.processes.draw(card.processes);
    this.link();
    this.drawStop();
    if (card.stopped !== this.stopped || !this.asked) {
      this.asked = true;
      this.stopped = card.stopped;
      this.slips.load();
    }
  }

  drawStop() {
    if (this.strip.draw()) requestAnimationFrame(() => !this.gone && this.drawStop());
  }

  /* The call of a sub-agent leads to it. */
  link() {
    for (const card of this.page.board.children(this.id)) {
      if (this.linked.has(card.id)) continue;
      const calls = [...this.talk.calls.values()].filter((one) => one.event.tool === "agent" && !one.linked);
      const call = calls.find(
        (one) =>
          one.event.at <= card.opened + 0.01 &&
          String(one.event.arguments?.text ?? "").startsWith(card.asked.slice(0, 40).replace(/…$/, "")),
      );
      if (!call) continue;
      call.linked = true;
      call.child(card.id);
      this.linked.add(card.id);
    }
  }

  /* The conversation has the receipt: the strip need not show it. */
  receipt(event) {
    const stop = this.page.stops.of(this.id);
    if (stop && event.session === this.id && event.seq > stop.after) {
      if (stop.over) this.page.stops.dismiss(this.id);
      else stop.inTalk = true;
    }
  }

  tick() {
    this.talk.tick();
    this.processes.tick();
  }

  sent() {
    if (this.page.stops.of(this.id)?.over) this.page.stops.dismiss(this.id);
    this.bottom(true);
  }

  neared(seen) {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue;
      this.observer.unobserve(target);
      this.works.get(target)?.();
    }
  }

  scrolled() {
    const box = this.scroller;
    this.sticky = box.scrollHeight - box.scrollTop - box.clientHeight < 60;
    show(this.latest, !this.sticky);
  }

  bottom(really) {
    if (really) this.sticky = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    show(this.latest, false);
  }

  toggleAside() {
    const open = this.node.dataset.aside !== "open";
    this.node.dataset.aside = open ? "open" : "";
    this.facts.setAttribute("aria-expanded", String(open));
    if (open) this.processes.tick();
  }

  /* Esc. */
  escape() {
    const card = this.page.board.cards.get(this.id);
    if (card && isLive(card) && card.state !== "stopping") this.page.stops.press(this.id, { reach: "turn" });
  }

  leave() {
    this.gone = true;
    this.quit();
    this.observer.disconnect();
    this.sizes.disconnect();
    this.node.remove();
  }
}
