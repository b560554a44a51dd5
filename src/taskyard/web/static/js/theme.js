// A classic script in the head, so that the page never shows in the wrong colours first.
"use strict";
(() => {
  let kept = null;
  try {
    kept = localStorage.getItem("taskyard-theme");
  } catch {
    kept = null; // storage may be forbidden: then the system decides
  }
  if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
})();
