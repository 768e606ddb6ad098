/* A list of receipts, the newest first; each opens to its whole. */

import { get } from "./api.js";
import { el } from "./dom.js";
import { receiptPanel, summary, verdict } from "./receipt.js";
import { ago, moment, seconds } from "./words.js";

export class Slips {
  constructor(path, nothing, name = null) {
    this.path = path;
    this.name = name;
    this.list = el("ul", { class: "slips" });
    this.nothing = el("p", { class: "nothing" }, nothing);
    this.node = el("div", {}, this.list, this.nothing);
    this.known = new Map();
    this.asking = false;
    this.again = false;
  }

  async load() {
    if (this.asking) return void (this.again = true);
    this.asking = true;
    try {
      const { receipts } = await get(this.path);
      this.draw(receipts);
    } catch {
      // what is listed stays; the next change asks again
    }
    this.asking = false;
    if (this.again) {
      this.again = false;
      this.load();
    }
  }

  draw(slips) {
    const wanted = slips.map((slip) => {
      if (!this.known.has(slip.seq)) this.known.set(slip.seq, this.item(slip));
      return this.known.get(slip.seq);
    });
    const there = [...this.list.children];
    if (wanted.length !== there.length || wanted.some((one, index) => one !== there[index]))
      this.list.replaceChildren(...wanted);
    this.nothing.hidden = slips.length > 0;
  }

  item(slip) {
    const receipt = { ...slip.receipt, confirmed: slip.confirmed };
    const whole = el("div");
    const fill = (event) => event.target.open && !whole.childElementCount && whole.append(receiptPanel(receipt));
    const what = this.name
      ? slip.session
        ? this.name(slip.session)
        : "Stop All"
      : slip.reach === "turn"
        ? "turn"
        : "session";
    return el(
      "li",
      {},
      el(
        "details",
        { class: "slip", data: { confirmed: slip.confirmed ? "yes" : "no" }, ontoggle: fill },
        el(
          "summary",
          {},
          verdict(slip.confirmed),
          el("span", { class: "what" }, what),
          el("span", { class: "found" }, summary(receipt)),
          el(
            "span",
            { class: "num when", title: moment(slip.at) },
            `${seconds(receipt.phases?.total ?? 0)} · ${ago(slip.at)}`,
          ),
        ),
        whole,
      ),
    );
  }
}
