"use strict";
(() => {
  const tip = document.getElementById("tip");
  const graph = document.getElementById("graph");
  const needs = new Map();
  const neededBy = new Map();
  const add = (map, key, value) => map.set(key, [...(map.get(key) || []), value]);
  for (const [before, after] of JSON.parse(document.getElementById("edges").textContent)) {
    add(needs, after, before);
    add(neededBy, before, after);
  }

  const reach = (map, from) => {
    const seen = new Set([from]);
    for (const at of seen) (map.get(at) || []).forEach((next) => seen.add(next));
    return seen;
  };

  const pick = (id) => {
    const up = reach(needs, id);
    const down = reach(neededBy, id);
    const among = (set, edge) => set.has(Number(edge.dataset.from)) && set.has(Number(edge.dataset.to));
    graph.classList.add("picking");
    for (const node of graph.querySelectorAll(".node")) {
      const at = Number(node.dataset.id);
      node.classList.toggle("on", up.has(at) || down.has(at));
    }
    for (const edge of graph.querySelectorAll(".edge")) {
      edge.classList.toggle("on", among(up, edge) || among(down, edge));
    }
  };

  const show = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - width - 8))}px`;
    tip.style.top = `${y + 18 + height > innerHeight ? Math.max(4, y - height - 10) : y + 18}px`;
  };

  const clear = () => {
    tip.hidden = true;
    if (graph) graph.classList.remove("picking");
  };

  for (const item of document.querySelectorAll("[data-id]")) {
    // The <title> serves readers without scripts; left in place, the browser would show a second tooltip.
    const title = item.querySelector("title");
    const text = title.textContent.trim();
    title.remove();
    item.setAttribute("aria-label", text);
    const isNode = item.classList.contains("node");
    item.addEventListener("pointermove", (event) => show(text, event.clientX, event.clientY));
    item.addEventListener("focus", () => {
      const box = item.getBoundingClientRect();
      show(text, box.left, box.bottom - 12);
      if (isNode) pick(Number(item.dataset.id));
    });
    if (isNode) item.addEventListener("pointerenter", () => pick(Number(item.dataset.id)));
    item.addEventListener("pointerleave", clear);
    item.addEventListener("blur", clear);
  }
})();
