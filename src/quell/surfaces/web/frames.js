/* Work on the page, put together: once a frame while it is looked at, a few times a second while it is not. */

const waiting = new Set();
let asked = false;

export function soon(work) {
  waiting.add(work);
  if (asked) return;
  asked = true;
  if (document.hidden) setTimeout(run, 250);
  else requestAnimationFrame(run);
}

function run() {
  asked = false;
  const now = [...waiting];
  waiting.clear();
  for (const work of now) work();
}

/* A frame that was asked for never comes to a page that is hidden meanwhile. */
document.addEventListener("visibilitychange", () => {
  if (document.hidden && asked) setTimeout(run, 0);
});

const tickers = new Set();
let beat = 0;

/* Called about every second while the page is looked at, until what this gives is called. */
export function everySecond(work) {
  tickers.add(work);
  if (!beat) beat = setInterval(() => !document.hidden && tickers.forEach((one) => one()), 1000);
  return () => {
    tickers.delete(work);
    if (tickers.size === 0) {
      clearInterval(beat);
      beat = 0;
    }
  };
}
