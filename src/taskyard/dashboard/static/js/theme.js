// A classic script in the head, so that the page never shows in the wrong colours first.
"use strict";
{
  const root = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  let kept = null;
  try {
    kept = localStorage.getItem("taskyard-theme");
  } catch {
    kept = null; // storage may be forbidden: then the system decides
  }
  root.dataset.colours = kept === "light" || kept === "dark" ? kept : "auto";
  const paint = () => {
    const chosen = root.dataset.colours;
    root.dataset.theme = chosen === "auto" ? (system.matches ? "dark" : "light") : chosen;
  };
  paint();
  system.addEventListener("change", paint);
  root.addEventListener("colours", paint);
}
