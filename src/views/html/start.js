/*
 * Puts the page together, and the keys that work everywhere.
 */

function keys(e) {
  if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) {
    if (e.key === "Escape" && e.target.tagName === "INPUT") e.target.blur();
    return;
  }
  if (e.key === "/" && byId("flame-search")) {
    byId("flame-search").focus();
    byId("flame").scrollIntoView();
    e.preventDefault();
  } else if (e.key === "f" && byId("places-search")) {
    byId("places-search").focus();
    byId("places").scrollIntoView();
    e.preventDefault();
  } else if (e.key === "t")
    toggleTheme();
  else if (e.key === "Escape")
    hideTip();
}

/* On paper everything is light, and stacks that are folded stay so. */
function printed(start) {
  if (start) printed.theme = document.documentElement.dataset.theme || "";
  document.documentElement.dataset.theme = start ? "light" : printed.theme;
  if (!document.documentElement.dataset.theme) delete document.documentElement.dataset.theme;
  showTheme();
}

writePage();
byId("theme").addEventListener("click", toggleTheme);
system.addEventListener("change", showTheme);
addEventListener("keydown", keys);
addEventListener("beforeprint", () => printed(true));
addEventListener("afterprint", () => printed(false));
addEventListener("scroll", hideTip, {passive: true});
nameTheme();
document.documentElement.dataset.ready = "yes";
