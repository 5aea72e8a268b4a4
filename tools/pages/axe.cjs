// axe.cjs MODULES PAGE...: what axe-core finds in each page, as JSON. Contrast needs a real browser: `make pictures`.
"use strict";
const { readFileSync } = require("node:fs");
const [modules, ...pages] = process.argv.slice(2);
const { Window } = require(`${modules}/happy-dom`);
const axe = readFileSync(`${modules}/axe-core/axe.min.js`, "utf8");

// Where the focus is after each key, from the first row of the first chart: its level, whether it is open.
const keys = (document) => {
  const { KeyboardEvent } = document.defaultView;
  document.querySelector("[data-chart] [tabindex='0']").focus();
  return ["ArrowRight", "ArrowDown", "ArrowLeft", "ArrowLeft", "End", "Home", "Enter", " "].map((key) => {
    document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    const at = document.activeElement;
    const stops = at.closest("[data-chart]").querySelectorAll("[tabindex='0']").length;
    return [key, at.querySelector(".name").textContent, at.getAttribute("aria-expanded"), stops];
  });
};

const judge = async (page) => {
  // The pages are ours, and so are their scripts.
  const settings = { enableJavaScriptEvaluation: true, suppressInsecureJavaScriptEnvironmentWarning: true };
  const window = new Window({ settings });
  window.document.write(readFileSync(page, "utf8"));
  await window.happyDOM.waitUntilComplete();
  window.eval(axe);
  const { violations, passes } = await window.axe.run({ rules: { "color-contrast": { enabled: false } } });
  const pressed = keys(window.document);
  await window.happyDOM.close();
  const found = violations.flatMap(({ id, help, nodes }) => nodes.map(({ html }) => `${id}: ${help}: ${html}`));
  return { found, passed: passes.map(({ id }) => id), pressed };
};

(async () => {
  const judged = [];
  for (const page of pages) judged.push(await judge(page));
  console.log(JSON.stringify(judged));
})();
