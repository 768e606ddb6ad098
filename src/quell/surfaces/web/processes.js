/* Live processes with everything that they started, looked at while somebody looks. */

import { get } from "./api.js";
import { el, say } from "./dom.js";
import { command, span } from "./words.js";

const PACE = 2000; // milliseconds between two looks

export class Processes {
  constructor(path, nothing, name = null) {
    this.path = path;
    this.name = name;
    this.list = el("ul", { class: "trees" });
    this.nothing = el("p", { class: "nothing" }, nothing);
    this.node = el("div", {}, this.list, this.nothing);
    this.members = new Map();
    this.commands = [];
    this.looking = false;
    this.last = 0;
    this.key = "";
  }

  /* What the board knows at once; who is below, the next look tells. */
  draw(commands) {
    this.commands = commands;
    const key = JSON.stringify([commands, [...this.members]]);
    if (key === this.key) return;
    this.key = key;
    this.list.replaceChildren(...commands.map((one) => this.tree(one)));
    this.nothing.hidden = commands.length > 0;
    this.tick();
  }

  tree(one) {
    const members = (this.members.get(one.pid) ?? []).filter((member) => member.pid !== one.pid);
    const time = el("span", { class: "num time", data: { since: one.since } });
    return el(
      "li",
      {},
      el(
        "div",
        { class: "line" },
        el("span", { class: "pid num" }, String(one.pid)),
        el("code", {}, command(one.argv)),
        one.background && el("span", { class: "tag" }, "background"),
        time,
      ),
      this.name && el("a", { class: "of", href: `#/s/${encodeURIComponent(one.session)}` }, this.name(one.session)),
      members.length > 0 &&
        el(
          "ul",
          {},
          members.map((member) =>
            el(
              "li",
              { class: "line" },
              el("span", { class: "pid num" }, String(member.pid)),
              el("code", {}, command(member.argv)),
            ),
          ),
        ),
    );
  }

  tick() {
    const now = Date.now() / 1000;
    for (const time of this.list.querySelectorAll("[data-since]")) say(time, span(now - time.dataset.since));
    if (this.commands.length && this.node.checkVisibility() && !this.looking && Date.now() - this.last > PACE)
      this.look();
  }

  async look() {
    this.looking = true;
    try {
      const { processes } = await get(this.path, PACE);
      this.members = new Map(processes.map((one) => [one.pid, one.members]));
      this.draw(this.commands);
    } catch {
      // the board's own list stands; the next look tells more
    }
    this.last = Date.now();
    this.looking = false;
  }
}
