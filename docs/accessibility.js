// Adds what the theme leaves out: keyboard access to wide tables, and distinct names of the buttons beside code.
function complete() {
  for (const table of document.querySelectorAll(".md-typeset__scrollwrap")) table.tabIndex = 0;
  document.querySelectorAll(".md-code__nav").forEach((nav, index) => nav.setAttribute("aria-label", `Code ${index + 1}`));
}
new MutationObserver(complete).observe(document.body, { childList: true, subtree: true });
complete();
