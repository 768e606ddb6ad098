/* The only way elements are made: strings become text, never markup. */

export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name === "text") node.textContent = value;
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((one) => one !== null && one !== undefined && one !== false));
  return node;
}

export function button(words, onclick, props = {}) {
  return el("button", { type: "button", onclick, ...props }, words);
}

/* Changes nothing where nothing changed: a selection in the text stays, and nothing is laid out again. */
export function say(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

export function show(node, yes) {
  if (node.hidden === yes) node.hidden = !yes;
}

const SVG = "http://www.w3.org/2000/svg";

export function icon(path, label = "") {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  if (label) svg.setAttribute("aria-label", label);
  else svg.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

export const SHAPES = {
  back: "M10 3 5 8l5 5",
  dots: "M3 8h.01M8 8h.01M13 8h.01",
  plus: "M8 3v10M3 8h10",
  close: "M4 4l8 8M12 4l-8 8",
  check: "M3 8.5 6.5 12 13 4.5",
  down: "M3 6l5 5 5-5",
  moon: "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5Z",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6ZM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  auto: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2ZM8 2v12M10 3v10M12 4.5v7",
  help: "M5.8 6a2.2 2.2 0 1 1 3.4 1.9c-.8.5-1.2.9-1.2 1.8M8 12.2h.01",
  list: "M3 4h10M3 8h10M3 12h6",
};
