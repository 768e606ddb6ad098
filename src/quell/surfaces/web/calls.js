/* One tool call, from the wish to its end: what is to be done, who was asked, what it shows, and how it ended. */

import { post, session } from "./api.js";
import { button, el, say, show } from "./dom.js";
import { Output } from "./output.js";
import { because, command, seconds } from "./words.js";

const ALLOWED = { once: "allowed once", session: "allowed in this session", always: "always allowed" };

export class Call {
  constructor(event, talk) {
    this.event = event;
    this.talk = talk;
    this.began = event.at;
    this.output = new Output();
    this.state = el("span", { class: "state" });
    this.time = el("span", { class: "num time" });
    this.pids = el("span", { class: "pids" });
    this.notes = el("div", { class: "notes" });
    this.error = el("p", { class: "wrong", hidden: true });
    this.children = el("span", { class: "child" });
    this.node = el(
      "section",
      { class: "call", "aria-label": `Tool ${event.tool ?? ""}` },
      el(
        "header",
        {},
        el("span", { class: "tool" }, event.tool || "tool"),
        this.pids,
        this.children,
        this.state,
        this.time,
      ),
      wanted(event.tool, event.arguments ?? {}),
      this.notes,
      this.output.node,
      this.error,
    );
    this.set("wanted");
  }

  set(state) {
    this.node.dataset.state = state;
    say(this.state, state === "done" ? "" : state);
    this.going = state === "running" || state === "wanted" || state === "asking";
  }

  started(event) {
    this.began = event.at;
    this.set("running");
  }

  show(event) {
    if (event.channel === "notice") this.notes.append(el("p", { class: "note" }, event.text ?? ""));
    else {
      this.output.append(event.text ?? "");
      this.talk.fresh.add(this.output);
    }
  }

  spawned(event) {
    const pid = el(
      "span",
      { class: "pid num", title: command(event.argv ?? []) },
      String(event.pid),
      event.background ? " bg" : "",
    );
    this.pids.append(pid);
    return pid;
  }

  child(id) {
    this.children.append(el("a", { href: `#/s/${encodeURIComponent(id)}` }, "open sub-agent"));
  }

  asked(event, open) {
    this.set("asking");
    this.approval = new Approval(event, this.talk.id, this.talk.notices);
    if (open) this.notes.append(this.approval.node);
  }

  answered(event) {
    this.approval?.over();
    const [words, tone] =
      event.kind === "approval.withdrawn"
        ? ["approval withdrawn", ""]
        : event.allow
          ? [ALLOWED[event.extent ?? "once"] ?? "allowed", "fine"]
          : ["refused", "wrong"];
    this.notes.append(el("p", { class: "note", data: { tone } }, words + because(event.reason)));
    if (this.going) this.set("wanted");
  }

  ended(event) {
    const stopped = (event.error ?? "").startsWith("stopped");
    this.set(event.error ? (stopped ? "stopped" : "failed") : "done");
    this.finish(event, event.error ?? "", event.result ?? "");
  }

  refused(event) {
    this.set("refused");
    this.finish(event, event.reason ?? "", "");
  }

  finish(event, words, result) {
    this.approval?.over();
    this.output.end(result);
    say(this.time, seconds(Math.max(0.01, event.at - this.began)));
    say(this.error, words);
    show(this.error, words !== "");
  }
}

/* The arguments in full: a command as a command, the rest as it is. */
export function wanted(tool, given) {
  const rest = { ...given };
  const parts = [];
  if (tool === "shell" && typeof rest.command === "string") {
    parts.push(el("pre", { class: "command" }, rest.command));
    delete rest.command;
  } else if (tool === "agent" && typeof rest.text === "string") {
    parts.push(el("p", { class: "asks" }, el("b", {}, String(rest.agent ?? "")), " ", rest.text));
    delete rest.text;
    delete rest.agent;
  }
  if (Object.keys(rest).length) parts.push(el("pre", { class: "arguments" }, JSON.stringify(rest, null, 2)));
  return el("div", { class: "wanted" }, parts);
}

/* A question to a person. What is allowed is what is shown: the answer carries the digest of it. */
export class Approval {
  constructor(event, id, notices) {
    this.event = event;
    this.id = id;
    this.notices = notices;
    this.reason = el("input", {
      type: "text",
      placeholder: "Reason to refuse",
      "aria-label": "Reason",
      maxlength: 500,
    });
    this.buttons = [
      button("Allow once", () => this.answer(true), { class: "allow" }),
      button("This session", () => this.answer(true, "session"), {
        title: "Allow, and do not ask again for exactly this in this session",
      }),
      button("Always", () => this.answer(true, "always"), {
        title: "Allow, and never ask again for exactly this: this agent in this folder",
      }),
      button("Refuse", () => this.answer(false), { class: "deny" }),
    ];
    this.node = el(
      "div",
      { class: "approval", role: "group", "aria-label": `Approval of ${event.tool ?? ""}` },
      el("p", {}, "May ", el("b", {}, event.tool ?? "this"), " do exactly this?"),
      el(
        "p",
        { class: "answers" },
        this.buttons,
        this.reason,
        el("span", { class: "digest num", title: `digest ${event.digest}` }, (event.digest ?? "").slice(0, 8)),
      ),
    );
  }

  async answer(allow, extent = "once") {
    this.wait(true);
    const request = this.event.seq ?? this.event.request;
    try {
      await post(session(this.id, `/approvals/${request}`), {
        allow,
        digest: this.event.digest ?? "",
        reason: this.reason.value,
        extent,
      });
    } catch (fault) {
      this.notices.wrong(fault);
      this.wait(false);
    }
  }

  wait(yes) {
    for (const one of [...this.buttons, this.reason]) one.disabled = yes;
  }

  over() {
    this.node.remove();
  }
}
