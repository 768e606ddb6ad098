/* Before the first paint: light or dark as this person chose; without a choice, as the system has it. */
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("quell.theme");
  } catch {
    /* a browser that keeps nothing still shows the page */
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
