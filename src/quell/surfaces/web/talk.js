/* A conversation: a fold over its events, each put where it belongs as it comes; what is there is never made again. */

import { Call } from "./calls.js";
import { button, el, say } from "./dom.js";
import { markdown } from "./html.js";
import { receiptPanel, summary, verdict } from "./receipt.js";
import { said } from "./said.js";
import { because, clock, command, count, moment, seconds, span } from "./words.js";

export class Talk {
  /* `near(node, work)` calls the work once when the node comes near the screen. */
  constructor(id, { notices, near, fork, onreceipt }) {
    this.id = id;
    this.notices = notices;
    this.near = near;
    this.fork = fork;
    this.onreceipt = onreceipt;
    this.cursor = 0;
    this.node = el("div", { class: "talk", role: "log", "aria-live": "off", "aria-label": "Conversation" });
    this.messages = new Map(); // not answered yet, by seq
    this.turns = new Map();
    this.calls = new Map();
    this.asked = new Map(); // approvals, by seq: the call
    this.halts = new Map();
    this.processes = new Map();
    this.summaries = new Set();
    this.open = null; // the turn that goes on
    this.fresh = new Set(); // outputs with something to show
  }

  take(events) {
    for (const event of events) {
      if (event.seq <= this.cursor) continue;
      this.cursor = event.seq;
      const work = KINDS[event.kind];
      if (work) work(this, event);
    }
    for (const output of this.fresh) output.settle();
    this.fresh.clear();
  }

  /* Once it can be seen: what goes on shows its end. */
  settle() {
    for (const call of this.calls.values()) if (call.going) call.output.bottom();
  }

  tick() {
    this.open?.tick();
  }

  put(event, ...nodes) {
    const turn = event.turn ? this.turns.get(`${event.session}/${event.turn}`) : undefined;
    if (turn) turn.body.append(...nodes);
    else this.node.append(...nodes);
  }

  turn(event) {
    return this.turns.get(`${event.session}/${event.turn}`);
  }

  note(event, words, tone = "") {
    this.put(event, el("p", { class: "note", data: { tone }, title: moment(event.at) }, words));
  }

  call(event, name = "request") {
    return this.calls.get(event[name]);
  }

  halt(event) {
    const head = el(
      "p",
      { class: "note", title: moment(event.at) },
      `${event.force ? "Forced stop" : "Stop"} of the ${event.reach ?? "turn"} asked for${because(event.reason)}`,
    );
    const node = el("section", { class: "halted" }, head);
    this.halts.set(event.seq, node);
    this.put(event, node);
  }

  receipt(event) {
    const node = this.halts.get(event.request) ?? el("section", { class: "halted" });
    const receipt = { confirmed: false, ...event.receipt };
    if (!node.isConnected && !node.parentNode) this.put(event, node);
    const nobody = receipt.confirmed && !(receipt.processes ?? []).length;
    if (nobody) node.append(el("p", { class: "receipt short" }, verdict(true), " ", summary(receipt)));
    else node.append(receiptPanel(receipt));
    this.onreceipt(event);
  }
}

class Turn {
  constructor(talk, event, message) {
    this.talk = talk;
    this.event = event;
    this.said = "";
    this.answers = new Map(); // by the model's request
    this.thoughts = new Map();
    this.body = el("div", { class: "steps" });
    this.foot = el(
      "p",
      { class: "foot" },
      el("span", { class: "working" }, "working"),
      (this.time = el("span", { class: "num" })),
    );
    this.node = el(
      "section",
      { class: "turn", "aria-label": `Turn ${event.turn}` },
      message && said(message),
      this.body,
      this.foot,
    );
  }

  /* Text of the answer while it comes, for one request to the model. */
  hear(request, text) {
    let block = this.answers.get(request);
    if (!block) {
      block = { text: document.createTextNode(""), node: el("div", { class: "answer", data: { live: "yes" } }) };
      block.node.append(block.text);
      this.answers.set(request, block);
      this.body.append(block.node);
    }
    block.text.appendData(text);
  }

  /* The model begins this answer again: what was heard of it is void. */
  restart(request) {
    this.answers.get(request)?.node.remove();
    this.answers.delete(request);
    const thought = this.thoughts.get(request);
    if (thought) thought.data = "";
  }

  answer(request, text) {
    const words = text.trim();
    let block = this.answers.get(request);
    this.thoughts.delete(request);
    if (!words) {
      if (block && !block.text.data.trim()) block.node.remove();
      return;
    }
    if (!block) {
      if (words === this.said) return;
      block = { node: el("div", { class: "answer" }) };
      this.answers.set(request, block);
      this.body.append(block.node);
    }
    this.said = words;
    delete block.node.dataset.live;
    block.node.textContent = words;
    this.talk.near(block.node, () => markdown(block.node, words));
  }

  think(request, text, words) {
    let thought = this.thoughts.get(request);
    if (!thought) {
      thought = document.createTextNode("");
      this.thoughts.set(request, thought);
      this.body.append(
        el("details", { class: "thought" }, el("summary", {}, words), el("div", { class: "thinking" }, thought)),
      );
    }
    thought.appendData(text);
  }

  tick() {
    say(this.time, span(Date.now() / 1000 - this.event.at));
  }

  end(event) {
    const usage = event.usage ?? {};
    const facts = [
      seconds(Math.max(0.01, event.at - this.event.at)),
      event.steps > 1 && count(event.steps, "step"),
      (usage.input ?? 0) + (usage.output ?? 0) > 0 &&
        `${(usage.input ?? 0).toLocaleString("en")} → ${(usage.output ?? 0).toLocaleString("en")} tokens`,
      usage.cached > 0 && `${usage.cached.toLocaleString("en")} cached`,
      usage.cost > 0 && `$${usage.cost.toFixed(4)}`,
      clock(event.at),
    ];
    const bad = event.end !== "completed";
    this.foot.replaceChildren(
      bad ? el("span", { class: "outcome", data: { end: event.end } }, event.end, because(event.reason)) : "",
      el("span", { class: "facts num" }, facts.filter(Boolean).join(" · ")),
      button("Fork here", () => this.talk.fork(event.seq), {
        class: "bare",
        "aria-label": `Fork after turn ${event.turn}`,
      }),
    );
    this.node.dataset.end = event.end;
    for (const block of this.answers.values()) delete block.node.dataset.live;
  }
}

const KINDS = {
  "message.user": (talk, event) => talk.messages.set(event.seq, event),
  "turn.started": (talk, event) => {
    const turn = new Turn(talk, event, talk.messages.get(event.cause));
    talk.messages.delete(event.cause);
    talk.turns.set(`${event.session}/${event.turn}`, turn);
    talk.node.append(turn.node);
    talk.open = turn;
    turn.tick();
  },
  "turn.ended": (talk, event) => {
    const turn = talk.turn(event);
    turn?.end(event);
    if (talk.open === turn) talk.open = null;
    if (event.reason && !turn) talk.note(event, `The turn ended: ${event.end}: ${event.reason}`);
  },
  "model.requested": (talk, event) => {
    if (event.purpose === "compact") talk.summaries.add(event.seq);
  },
  "message.delta": (talk, event) => talk.turn(event)?.hear(event.cause, event.text ?? ""),
  "model.delta": (talk, event) => {
    if (event.channel === "notice") talk.note(event, event.text ?? "");
    else if (!talk.summaries.has(event.request))
      talk.turn(event)?.think(event.request, event.text ?? "", event.channel === "reasoning" ? "Thinking" : "Draft");
  },
  "model.restarted": (talk, event) => {
    talk.turn(event)?.restart(event.request);
    talk.note(event, event.reason ?? "");
  },
  "model.answered": (talk, event) => {
    if (!talk.summaries.has(event.request)) talk.turn(event)?.answer(event.request, event.text ?? "");
  },
  "model.failed": (talk, event) => talk.note(event, `The model failed: ${event.error ?? ""}`, "wrong"),
  "message.done": (talk, event) => talk.turn(event)?.answer(`done ${event.seq}`, event.text ?? ""),
  "tool.requested": (talk, event) => {
    const call = new Call(event, talk);
    talk.calls.set(event.seq, call);
    talk.put(event, call.node);
  },
  "tool.started": (talk, event) => talk.call(event)?.started(event),
  "tool.output": (talk, event) => talk.call(event)?.show(event),
  "tool.ended": (talk, event) => talk.call(event)?.ended(event),
  "tool.refused": (talk, event) => talk.call(event)?.refused(event),
  "approval.asked": (talk, event) => {
    const call = talk.call(event, "cause");
    if (!call) return;
    talk.asked.set(event.seq, call);
    call.asked(event, event.session === talk.id);
  },
  "approval.answered": (talk, event) => talk.asked.get(event.request)?.answered(event),
  "approval.withdrawn": (talk, event) => talk.asked.get(event.request)?.answered(event),
  "process.spawned": (talk, event) => {
    const pid = talk.call(event, "cause")?.spawned(event);
    if (pid) talk.processes.set(event.seq, { pid, event });
  },
  "process.ended": (talk, event) => {
    const one = talk.processes.get(event.cause);
    if (!one) return;
    one.pid.dataset.end = event.end ?? "gone";
    one.pid.title = `${command(one.event.argv ?? [])}\n${event.end ?? "gone"}`;
    talk.processes.delete(event.cause);
    if (one.event.background)
      talk.note({ ...event, turn: 0 }, `Background command ${event.pid} ended: ${event.end ?? "gone"}`);
  },
  "session.configured": (talk, event) =>
    talk.note(event, `From here on: ${[event.agent, event.model].filter(Boolean).join(" with ")}`),
  "queue.parked": (talk, event) =>
    talk.note(event, `${count((event.messages ?? []).length, "waiting message")} parked${because(event.reason)}`),
  "queue.released": (talk, event) => talk.note(event, `${count((event.messages ?? []).length, "message")} released`),
  "queue.discarded": (talk, event) => {
    for (const seq of event.messages ?? []) talk.messages.delete(seq);
    talk.note(event, `${count((event.messages ?? []).length, "message")} discarded${because(event.reason)}`);
  },
  "stop.requested": (talk, event) => talk.halt(event),
  "stop.receipt": (talk, event) => talk.receipt(event),
  "session.forked": (talk, event) => {
    talk.messages.clear();
    talk.node.append(
      el(
        "p",
        { class: "note rule" },
        "Forked from ",
        el("a", { href: `#/s/${encodeURIComponent(event.origin ?? "")}` }, event.origin ?? "?"),
      ),
    );
  },
  "session.compacted": (talk, event) =>
    talk.put(
      event,
      el(
        "details",
        { class: "thought" },
        el("summary", {}, "What came before was summed up"),
        el("div", { class: "thinking" }, event.summary ?? ""),
      ),
    ),
  "session.closed": (talk, event) => talk.note(event, `Closed${because(event.reason)}`),
  "harness.starting": (talk, event) => talk.note(event, `${event.harness || "The harness"} is started`),
  "harness.ended": (talk, event) => talk.note(event, `The harness ended${because(event.reason)}`),
  "memory.stored": (talk, event) => talk.note(event, `Remembered: ${event.text ?? ""}`),
  "runtime.error": (talk, event) => talk.note(event, event.error ?? "", "wrong"),
  "plugin.error": (talk, event) => talk.note(event, `${event.plugin}: ${event.error}`, "wrong"),
};
