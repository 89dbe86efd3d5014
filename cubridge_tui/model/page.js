
"use strict";
// What shows the same op (data-k), or belongs to the same hunk (data-h), by its value.
const groups = { k: new Map(), h: new Map() };
for (const each of document.querySelectorAll("[data-k], [data-h]")) {
  for (const name of ["k", "h"]) {
    const value = each.dataset[name];
    if (value === undefined) continue;
    if (!groups[name].has(value)) groups[name].set(value, []);
    groups[name].get(value).push(each);
  }
}
let marked = [];
function of(target) {
  const at = target.closest("[data-k], [data-h]");
  if (!at) return [null, []];
  const name = at.dataset.k !== undefined ? "k" : "h";
  return [at, groups[name].get(at.dataset[name]) || []];
}
function mark(event) {
  for (const each of marked) each.classList.remove("mark");
  marked = of(event.target)[1].filter((each) => each.closest(".code"));
  for (const each of marked) each.classList.add("mark");
}
document.addEventListener("mouseover", mark);
document.addEventListener("focusin", mark);  // a hunk, by the keyboard
document.addEventListener("click", (event) => {
  const [at, same] = of(event.target);
  const own = at && at.closest(".code");
  const seen = new Set(own ? [own] : []);
  for (const each of same) {
    const pane = each.closest(".code");
    if (!pane || seen.has(pane)) continue;
    seen.add(pane);
    pane.scrollTop = each.offsetTop - pane.clientHeight / 3;
  }
});
