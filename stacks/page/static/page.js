"use strict";
// What the page does more of with a script: it answers in place, looks again, copies, and draws.

const replace = (place, text) => {
  // Parsed as a document of its own: nothing of it runs, and what comes of it are elements.
  const made = new DOMParser().parseFromString(text, "text/html");
  place.replaceChildren(...made.body.childNodes);
};

const gone = document.querySelector("main")?.dataset.gone;

for (const form of document.querySelectorAll("form[data-into]")) {
  const place = document.getElementById(form.dataset.into);
  let latest = 0;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { inTurn } = form.dataset;
    const button = event.submitter;
    // An answer that is on its way belongs to what is asked next.
    if (inTurn && !button?.name && place.hasAttribute("aria-busy")) return;
    const number = ++latest;
    place.setAttribute("aria-busy", "true");
    let text;
    try {
      const body = new URLSearchParams(new FormData(form));
      if (button?.name) body.append(button.name, button.value);
      const answer = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { "X-Part": "1" } });
      text = await answer.text();
    } catch {
      text = null;
    }
    if (number !== latest) return;
    if (text === null) place.textContent = gone;
    else replace(place, text);
    place.removeAttribute("aria-busy");
    if (!inTurn) return;
    const written = document.getElementById(inTurn);
    if (place.querySelector("[data-answered]")) written.value = "";
    const turns = place.querySelector(".turns");
    if (turns) turns.scrollTop = turns.scrollHeight;
    if (!place.contains(document.activeElement)) written.focus();
  });
}

const live = document.getElementById("live-now");
if (live) {
  const every = Number(live.dataset.every) * 1000;
  let waiting = 0;
  const look = async () => {
    clearTimeout(waiting);
    if (document.hidden) return;
    try {
      const answer = await fetch(live.dataset.from, { headers: { "X-Part": "1" } });
      // Nobody's place on the page is taken away.
      if (answer.ok && !live.contains(document.activeElement)) replace(live, await answer.text());
    } catch {
      live.textContent = gone;
      return;
    }
    waiting = setTimeout(look, every);
  };
  document.addEventListener("visibilitychange", look);
  waiting = setTimeout(look, every);
}

for (const button of document.querySelectorAll("[data-copy]")) {
  if (!navigator.clipboard) break;
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copy it by hand";
    }
  });
}

for (const place of document.querySelectorAll(".drawing")) {
  const text = document.getElementById(place.dataset.for);
  const [high, wide, largest] = ["high", "wide", "largest"].map((each) => Number(place.dataset[each]));
  const given = text.value.split(/[\s,;]+/).filter(Boolean).map(Number);
  const values = Array.from({ length: high * wide }, (_, at) => given[at] || 0);
  const pixels = document.createElement("div");
  pixels.className = "pixels";
  pixels.style.gridTemplateColumns = `repeat(${wide}, 1fr)`;
  pixels.setAttribute("role", "group");
  pixels.setAttribute("aria-label", `Drawing of ${high} by ${wide}: arrows move, the space bar draws`);
  const cells = values.map((_, at) => {
    const cell = document.createElement("button");
    cell.type = "button";
    cell.tabIndex = at ? -1 : 0;
    pixels.append(cell);
    return cell;
  });
  const show = (at) => {
    const part = Math.min(1, Math.max(0, values[at] / largest));
    cells[at].style.setProperty("--ink-of-pixel", part);
    cells[at].setAttribute("aria-pressed", part >= 0.5);
    cells[at].setAttribute("aria-label", `row ${Math.floor(at / wide) + 1}, column ${(at % wide) + 1}`);
  };
  const write = () => {
    const rows = Array.from({ length: high }, (_, row) => values.slice(row * wide, (row + 1) * wide).join(" "));
    text.value = rows.join("\n");
  };
  const put = (at, value) => {
    values[at] = value;
    show(at);
  };
  // A pen is a little wider than its middle, as in the pictures that models learn from.
  const draw = (at) => {
    const [row, column] = [Math.floor(at / wide), at % wide];
    put(at, largest);
    for (const [down, across] of [[-1, 0], [1, 0], [0, -1], [0, 1]]) {
      const [r, c] = [row + down, column + across];
      const beside = r * wide + c;
      if (r >= 0 && r < high && c >= 0 && c < wide && values[beside] < largest / 4) {
        put(beside, Math.round(largest / 4));
      }
    }
    write();
  };
  pixels.addEventListener("pointerdown", (event) => {
    if (event.target.parentElement !== pixels) return;
    event.target.releasePointerCapture(event.pointerId);
    draw(cells.indexOf(event.target));
  });
  pixels.addEventListener("pointermove", (event) => {
    const at = event.buttons ? cells.indexOf(document.elementFromPoint(event.clientX, event.clientY)) : -1;
    if (at >= 0) draw(at);
  });
  pixels.addEventListener("keydown", (event) => {
    const at = cells.indexOf(event.target);
    const [row, column] = [Math.floor(at / wide), at % wide];
    const to = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
    }[event.key];
    if (to && to[0] >= 0 && to[0] < high && to[1] >= 0 && to[1] < wide) {
      const next = cells[to[0] * wide + to[1]];
      cells[at].tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
      event.preventDefault();
    } else if (event.key === " " || event.key === "Enter") {
      put(at, values[at] >= largest / 2 ? 0 : largest);
      write();
      event.preventDefault();
    }
  });
  text.addEventListener("input", () => {
    const typed = text.value.split(/[\s,;]+/).filter(Boolean).map(Number);
    values.forEach((_, at) => put(at, typed[at] || 0));
  });
  const clear = document.createElement("button");
  clear.type = "button";
  clear.className = "quiet";
  clear.textContent = "Clear";
  clear.addEventListener("click", () => {
    values.forEach((_, at) => put(at, 0));
    write();
  });
  values.forEach((_, at) => show(at));
  place.append(pixels, clear);
  text.closest("details").open = false;
}
