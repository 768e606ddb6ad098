/* A button that opens a list of acts; arrows walk it, Escape closes it. */

import { button, el, icon, SHAPES } from "./dom.js";

export function menu(label, acts) {
  const opener = button(icon(SHAPES.dots), () => set(list.hidden), {
    class: "bare",
    "aria-label": `${label}: more`,
    "aria-haspopup": "menu",
    "aria-expanded": "false",
  });
  const items = acts.map(([words, act, title, tone]) => {
    const chosen = () => {
      set(false);
      act();
    };
    return button(words, chosen, { role: "menuitem", tabindex: "-1", title, class: tone ?? "" });
  });
  const list = el("div", { role: "menu", "aria-label": label, hidden: true }, items);
  const node = el("div", { class: "menu" }, opener, list);

  function set(open) {
    list.hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
    if (open) {
      items[0].focus();
      addEventListener("pointerdown", outside, true);
    } else {
      removeEventListener("pointerdown", outside, true);
    }
  }

  function outside(event) {
    if (!node.contains(event.target)) set(false);
  }

  node.addEventListener("keydown", (event) => {
    if (list.hidden) return;
    const here = items.indexOf(document.activeElement);
    const next = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: items.length - 1 }[event.key];
    if (next !== undefined) items.at(next % items.length).focus();
    else if (event.key === "Escape") {
      set(false);
      opener.focus();
    } else if (event.key === "Tab") return set(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return node;
}
