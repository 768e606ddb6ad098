/* Messages that wait for their turn, and those that a stop parked: neither run nor lost until somebody says so. */

import { post, session } from "./api.js";
import { button, el, show } from "./dom.js";
import { count } from "./words.js";

export class Queue {
  constructor(id, notices) {
    this.id = id;
    this.notices = notices;
    this.node = el("section", { class: "queue", "aria-label": "Queue", hidden: true });
    this.key = "";
  }

  draw(queue, open) {
    const key = JSON.stringify([queue, open]);
    if (key === this.key) return;
    this.key = key;
    const waiting = queue.filter((one) => !one.parked);
    const parked = queue.filter((one) => one.parked);
    this.node.replaceChildren(
      ...(parked.length
        ? [this.group(`${parked.length} parked`, "They wait until you release or discard them.", parked, open)]
        : []),
      ...(waiting.length ? [this.group(`${waiting.length} waiting`, "Answered in this order.", waiting, null)] : []),
    );
    show(this.node, queue.length > 0);
  }

  group(words, hint, messages, open) {
    const acts = open !== null;
    const all = acts && messages.length > 1;
    return el(
      "div",
      { class: "group", data: { parked: acts ? "yes" : "no" } },
      el(
        "header",
        {},
        el("b", {}, words),
        el("span", { class: "hint" }, hint),
        all && button("Release all", (event) => this.pick("release", null, event), { class: "small", disabled: !open }),
        all && button("Discard all", (event) => this.pick("discard", null, event), { class: "small quiet" }),
      ),
      el(
        "ul",
        {},
        messages.map((one) =>
          el(
            "li",
            {},
            el("span", { class: "text" }, one.text),
            acts &&
              button("Release", (event) => this.pick("release", [one.message], event), {
                class: "small",
                disabled: !open,
                title: open ? "" : "Admission is closed",
              }),
            acts && button("Discard", (event) => this.pick("discard", [one.message], event), { class: "small quiet" }),
          ),
        ),
      ),
    );
  }

  async pick(act, messages, event) {
    const pressed = event.currentTarget;
    pressed.disabled = true;
    try {
      const picked = await post(session(this.id, `/queue/${act}`), { messages });
      this.notices.announce(
        `${count(picked.messages.length, "message")} ${act === "release" ? "released" : "discarded"}`,
      );
    } catch (fault) {
      this.notices.wrong(fault);
      pressed.disabled = false;
    }
  }
}
