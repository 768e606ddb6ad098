/* Markdown, made into HTML and sanitised by the server: the only markup that this page takes from anywhere.

The one Trusted Types policy is here and is not handed out; whoever wants Markdown shown gives text. */

import { post } from "./api.js";

const MOST = 40; // texts in one request
const ROOM = 300_000; // characters in one request; a longer text stays as it is
const WAIT = 30; // milliseconds for more to come

const policy = globalThis.trustedTypes?.createPolicy("quell", { createHTML: (markup) => markup });
const kept = new Map();
let asked = [];
let timer = 0;

/* Shows the text at once, and as Markdown when the server has rendered it. */
export function markdown(node, text) {
  node.textContent = text;
  delete node.dataset.rendered;
  if (!text.trim() || text.length > ROOM) return;
  const known = kept.get(text);
  if (known !== undefined) return put(node, known);
  asked.push({ node, text });
  timer ||= setTimeout(ask, WAIT);
}

async function ask() {
  timer = 0;
  const batch = [];
  let room = ROOM;
  while (asked.length && batch.length < MOST && (room -= asked[0].text.length) >= 0) batch.push(asked.shift());
  if (asked.length) timer = setTimeout(ask, 0);
  let html;
  try {
    ({ html } = await post("markdown", { texts: batch.map((one) => one.text) }));
  } catch {
    return; // it stays the text that it is
  }
  batch.forEach(({ node, text }, index) => {
    if (kept.size > 500) kept.delete(kept.keys().next().value);
    kept.set(text, html[index]);
    if (node.textContent === text) put(node, html[index]);
  });
}

function put(node, markup) {
  node.innerHTML = policy ? policy.createHTML(markup) : markup;
  node.dataset.rendered = "yes";
  for (const link of node.querySelectorAll("a[href]")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
  }
}
