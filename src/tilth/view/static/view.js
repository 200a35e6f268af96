// Keys, parts of pages that are loaded again, and forms that need more than a browser gives.
"use strict";

// data-key: a key that clicks a link or button, or goes to a field.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const typing = event.target.closest("input:not([type=checkbox]):not([type=radio]), textarea, select");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  for (const element of document.querySelectorAll("[data-key]")) {
    if (element.dataset.key !== event.key || element.disabled) continue;
    event.preventDefault();
    if (element.matches("input:not([type=checkbox]), textarea, select")) element.focus();
    else element.click();
    return;
  }
});

// data-load, data-every: a part of the page, and after how many seconds it is asked for again.
for (const part of document.querySelectorAll("[data-load][data-every]")) {
  const again = async () => {
    try {
      if (!document.hidden) {
        const answer = await fetch(part.dataset.load);
        if (answer.ok) part.innerHTML = await answer.text();
      }
    } catch {
      // The server has ended: the page stays as it is.
    }
    setTimeout(again, 1000 * Number(part.dataset.every));
  };
  setTimeout(again, 1000 * Number(part.dataset.every));
}

// data-open-wide: opened on wide screens alone.
for (const part of document.querySelectorAll("details[data-open-wide]")) {
  if (window.matchMedia("(max-width: 900px)").matches) part.open = false;
}
