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
  // Who has gone to a link or button means that one.
  if (event.key === "Enter" && event.target.closest("a, summary, button:not(.word)")) return;
  for (const element of document.querySelectorAll("[data-key]")) {
    if (element.dataset.key !== event.key || element.disabled) continue;
    event.preventDefault();
    if (element.matches("input:not([type=checkbox]), textarea, select")) element.focus();
    else element.click();
    return;
  }
});

// data-load, data-every: a part of the page, and after how many seconds it is asked for again.
// It stays as it is while the focus is in it. data-first: a part that holds data-ready loads the page.
for (const part of document.querySelectorAll("[data-load][data-every]")) {
  let shown = "";
  const again = async () => {
    try {
      if (!document.hidden && !part.contains(document.activeElement)) {
        const answer = await fetch(part.dataset.load);
        const text = await answer.text();
        if (answer.ok && text !== shown && !part.contains(document.activeElement)) {
          part.innerHTML = text;
          shown = text;
        }
        if ("first" in part.dataset && part.querySelector("[data-ready]")) location.reload();
      }
    } catch {
      // The server has ended: the page stays as it is.
    }
    setTimeout(again, 1000 * Number(part.dataset.every));
  };
  setTimeout(again, 1000 * Number(part.dataset.every));
}

// data-follow: a place for results; one that is not there yet (data-wait) is asked for again.
const follow = (part) => {
  const shown = part.querySelector("[data-said]");
  const said = document.getElementById("said");
  if (shown && said) said.textContent = shown.dataset.said;
  const waiting = part.querySelector("[data-wait]");
  if (!waiting) return;
  setTimeout(async () => {
    if (!part.contains(waiting)) return;
    try {
      const answer = await fetch(waiting.dataset.wait);
      const text = await answer.text();
      if (!answer.ok || !part.contains(waiting)) return;
      part.innerHTML = text;
      follow(part);
    } catch {
      // The server has ended: the page stays as it is.
    }
  }, 300);
};
for (const part of document.querySelectorAll("[data-follow]")) follow(part);

// data-live, data-on: a form that is sent as somebody types or moves a slider, and the place
// (data-into) of what comes back.
for (const form of document.querySelectorAll("form[data-live]")) {
  const into = document.getElementById(form.dataset.into || "result");
  let timer = 0;
  let asking = new AbortController();
  const send = async () => {
    asking.abort();
    asking = new AbortController();
    const fields = new URLSearchParams(new FormData(form));
    fields.set("live", "1");
    try {
      const answer = await fetch(form.dataset.live,
        { method: "POST", body: fields, signal: asking.signal });
      if (!answer.ok) return;
      into.innerHTML = await answer.text();
      follow(into);
    } catch {
      // A later request has taken its place, or the server has ended.
    }
  };
  const later = () => {
    clearTimeout(timer);
    if (form.checkValidity()) timer = setTimeout(send, 120);
  };
  form.addEventListener(form.dataset.on, later);
  if (form.dataset.into) send();
}

// data-tasks: shown for these tasks alone.
for (const part of document.querySelectorAll("[data-tasks]")) {
  const task = part.closest("form").elements.task;
  const show = () => { part.hidden = !part.dataset.tasks.split(" ").includes(task.value); };
  task.addEventListener("change", show);
  show();
}

// A slider shows its value.
for (const slider of document.querySelectorAll("input[type=range]")) {
  const shown = slider.parentElement.querySelector("output");
  slider.addEventListener("input", () => { shown.textContent = slider.value; });
}

// data-open-wide: opened on wide screens alone.
for (const part of document.querySelectorAll("details[data-open-wide]")) {
  if (window.matchMedia("(max-width: 900px)").matches) part.open = false;
}

// data-spans: words of a sentence, chosen by keys, mouse or finger, and their types.
for (const box of document.querySelectorAll("[data-spans]")) {
  const words = [...box.querySelectorAll("[data-word]")];
  const form = box.closest("form");
  const types = [...form.querySelectorAll("[data-type]")].map((button) => button.dataset.type);
  let spans = JSON.parse(box.dataset.spans); // [first word, word after the last, type]
  let anchor = 0;
  let end = 0;
  let waiting = false; // one word was clicked: another click ends the choice
  const show = () => {
    const [first, last] = [Math.min(anchor, end), Math.max(anchor, end)];
    words.forEach((word, place) => {
      const span = spans.find(([begin, stop]) => begin <= place && place < stop);
      const isAt = first <= place && place <= last;
      word.className = "word" + (isAt ? " at" : "");
      if (span) word.classList.add("in", "colour-" + (types.indexOf(span[2]) % 8));
      word.setAttribute("aria-pressed", String(isAt));
      word.title = span ? span[2] : "";
      word.tabIndex = place === end ? 0 : -1;
    });
    const said = spans.map(([begin, stop, type]) =>
      type + ": " + words.slice(begin, stop).map((word) => word.textContent).join(" "));
    form.querySelector(".spans-said").textContent = said.join("; ") || "No span.";
    form.elements.value.value = JSON.stringify(spans);
  };
  const give = (type) => {
    const [first, last] = [Math.min(anchor, end), Math.max(anchor, end) + 1];
    spans = spans.filter(([begin, stop]) => stop <= first || begin >= last);
    if (type) spans.push([first, last, type]);
    spans.sort((one, other) => one[0] - other[0]);
    waiting = false;
    show();
  };
  for (const word of words) {
    word.addEventListener("click", (event) => {
      const place = Number(word.dataset.word);
      if (!event.shiftKey && !waiting) anchor = place;
      end = place;
      waiting = !event.shiftKey && !waiting;
      show();
    });
  }
  for (const button of form.querySelectorAll("[data-type]")) {
    button.addEventListener("click", () => give(button.dataset.type));
  }
  document.addEventListener("keydown", (event) => {
    if (event.target.closest("input, textarea, select") || event.ctrlKey || event.metaKey) return;
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const direction = getComputedStyle(box).direction === "rtl" ? -step : step;
    end = Math.max(0, Math.min(words.length - 1, end + direction));
    if (!event.shiftKey) anchor = end;
    waiting = false;
    show();
    words[end].focus();
  });
  show();
}

// data-upload: a form that sends the bytes of one file.
for (const form of document.querySelectorAll("form[data-upload]")) {
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = form.querySelector("output");
    const answer = await fetch(form.dataset.upload, {
      method: "POST",
      headers: { "X-CSRF": form.dataset.csrf },
      body: form.elements.file.files[0],
    });
    const text = await answer.text();
    const page = new DOMParser().parseFromString(text, "text/html");
    said.textContent = answer.ok ? text : (page.querySelector(".claim") || page.body).textContent;
  });
}
