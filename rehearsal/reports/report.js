"use strict";
(() => {
  const folded = (row) => row.getAttribute("aria-expanded") === "false";
  const foldable = (row) => row.hasAttribute("aria-expanded");

  const fold = (row, close) => {
    row.setAttribute("aria-expanded", String(!close));
    for (let next = row.nextElementSibling; next && !foldable(next); next = next.nextElementSibling) next.hidden = close;
  };

  const above = (row) => {
    while (row && !foldable(row)) row = row.previousElementSibling;
    return row;
  };

  for (const chart of document.querySelectorAll("[data-chart]")) {
    const items = () => [...chart.querySelectorAll("[tabindex]")].filter((item) => !item.hasAttribute("hidden"));
    // One of a chart's items is in the order of Tab; the arrow keys go on from it.
    const go = (item) => {
      if (!item) return;
      for (const each of chart.querySelectorAll('[tabindex="0"]')) each.setAttribute("tabindex", "-1");
      item.setAttribute("tabindex", "0");
      item.focus();
    };
    chart.addEventListener("keydown", (event) => {
      const at = event.target.closest("[tabindex]");
      const all = items();
      const place = all.indexOf(at);
      const inRows = at.matches("tr");
      const keys = {
        ArrowDown: () => go(all[place + 1]),
        ArrowUp: () => go(all[place - 1]),
        Home: () => go(all[0]),
        End: () => go(all[all.length - 1]),
        ArrowRight: () => (inRows && folded(at) ? fold(at, false) : go(all[place + 1])),
        ArrowLeft: () => (!inRows ? go(all[place - 1]) : foldable(at) ? fold(at, true) : go(above(at))),
        Enter: () => inRows && foldable(at) && fold(at, !folded(at)),
        " ": () => inRows && foldable(at) && fold(at, !folded(at)),
      };
      if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
      keys[event.key]();
      event.preventDefault();
    });
    chart.addEventListener("click", (event) => {
      const item = event.target.closest("[tabindex]");
      if (!item || String(getSelection())) return;
      go(item);
      if (foldable(item)) fold(item, !folded(item));
    });
  }

  // Paper has no clicks: what is folded in the text is printed open.
  const closed = () => [...document.querySelectorAll("details:not([open])")];
  let opened = [];
  addEventListener("beforeprint", () => (opened = closed()).forEach((each) => (each.open = true)));
  addEventListener("afterprint", () => opened.forEach((each) => (each.open = false)));
})();
