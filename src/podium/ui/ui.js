// An open page is sent what changed of it; what changes something asks once.
"use strict";

const main = document.querySelector("main"), said = document.getElementById("said"), live = document.getElementById("live");
// What may change something is kept where no other port of this host reads it, unlike a cookie.
const given = /^#token=(.+)$/.exec(location.hash);
if (given) {
  localStorage.setItem("podium-token", given[1]);
  history.replaceState(null, "", location.pathname + location.search);
}
const token = document.querySelector("meta[name=token]").content = localStorage.getItem("podium-token") ?? "";
const figures = JSON.parse(document.getElementById("figures").textContent);

// Changes a tree into another one of the same page, so that focus, scrolling and what was typed stay.
function become(old, next) {
  if (old.nodeType !== next.nodeType || old.nodeName !== next.nodeName) return old.replaceWith(next);
  if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== next.data) old.data = next.data; return; }
  if (old.matches("[data-figure], form.try, select, input")) return;
  for (const {name} of [...old.attributes]) if (!next.hasAttribute(name)) old.removeAttribute(name);
  for (const {name, value} of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const atEnd = old.matches("pre.log") && old.scrollHeight - old.scrollTop - old.clientHeight < 20;
  const own = [...old.childNodes], other = [...next.childNodes];
  other.forEach((child, at) => at < own.length ? become(own[at], child) : old.append(child));
  own.slice(other.length).forEach(child => child.remove());
  if (atEnd) old.scrollTop = old.scrollHeight;
}

// Times are the reader's, with UTC on hover; a list has its days as headings.
function localize(root) {
  const two = number => String(number).padStart(2, "0");
  for (const time of root.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    time.title = time.textContent;
    time.textContent = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}`;
  }
  for (const table of root.querySelectorAll("table.days")) {
    let day = "";
    for (const row of [...table.rows].filter(row => row.querySelector("time"))) {
      const time = row.querySelector("time"), [own, clock] = time.textContent.split(" ");
      time.textContent = clock;
      if (own === day) continue;
      const head = Object.assign(document.createElement("th"), {colSpan: row.cells.length, scope: "rowgroup"});
      head.textContent = new Date(time.dateTime).toLocaleDateString("en", {weekday: "long", day: "numeric", month: "long", year: "numeric"});
      const line = Object.assign(document.createElement("tr"), {className: "day"});
      line.append(head);
      row.before(line);
      day = own;
    }
  }
}
localize(main);

// What surrounds the content of the first page is not in what follows.
for (const end of [main.firstChild, main.lastChild]) if (end.nodeType === Node.TEXT_NODE) end.remove();

let plotly = null;
function loadPlotly() {
  return plotly ??= new Promise((done, fail) => document.head.append(Object.assign(document.createElement("script"), {src: "/static/plotly.js", onload: done, onerror: fail})));
}

async function draw(names) {
  const places = [...main.querySelectorAll("[data-figure]")].filter(place => names.includes(place.dataset.figure) && figures[place.dataset.figure]);
  if (!places.length) return;
  await loadPlotly();
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  for (const place of places) {
    const {data, layout} = structuredClone(figures[place.dataset.figure]);
    Object.assign(layout, {paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: {...layout.font, color: color("--ink")}});
    for (const axis of Object.keys(layout).filter(name => /^[xy]axis/.test(name)))
      Object.assign(layout[axis], {gridcolor: color("--line"), zerolinecolor: color("--line"), linecolor: color("--line")});
    Plotly.react(place, data, layout, {responsive: true, displayModeBar: false});
  }
}

function tell(text, bad) {
  const link = /http:\/\/127\.0\.0\.1:\d+\//.exec(text);
  said.replaceChildren(link ? text.slice(0, link.index) : text);
  if (link) said.append(Object.assign(document.createElement("a"), {href: link[0], textContent: link[0], target: "_blank", rel: "noreferrer"}));
  said.hidden = !text;
  said.className = bad ? "trouble" : "";
}

async function ask(question) {
  const dialog = document.getElementById("ask");
  dialog.querySelector("p").textContent = question;
  dialog.returnValue = "";
  dialog.showModal();
  await new Promise(done => dialog.addEventListener("close", done, {once: true}));
  return dialog.returnValue === "yes";
}

document.addEventListener("submit", async event => {
  const form = event.target.closest("form[data-post]");
  if (!form) return;
  event.preventDefault();
  const body = JSON.stringify(Object.fromEntries(new FormData(form)));
  if (form.dataset.ask && !await ask(form.dataset.ask)) return;
  tell("…");
  const answer = await fetch(form.dataset.post, {method: "POST", body, headers: {"Content-Type": "application/json", "X-Podium-Token": token}});
  const {said: text, error} = await answer.json();
  tell(text ?? error, !answer.ok);
  if (answer.ok) follow();
});

let source = null;
function follow() {
  source?.close();
  source = new EventSource(location.href);
  source.onopen = () => live.classList.add("on");
  source.onerror = () => live.classList.remove("on");
  source.addEventListener("over", () => { source.close(); live.classList.remove("on"); });
  source.onmessage = event => {
    const {html, figures: changed} = JSON.parse(event.data);
    if (html !== undefined) {
      const next = document.createElement("main");
      next.innerHTML = html.trim();
      localize(next);
      become(main, next);
      prepareTries();
    }
    Object.assign(figures, changed);
    draw(html === undefined ? Object.keys(changed) : Object.keys(figures)).catch(error => tell(String(error), true));
  };
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => draw(Object.keys(figures)));
for (const log of document.querySelectorAll("pre.log")) log.scrollTop = log.scrollHeight;
draw(Object.keys(figures)).catch(error => tell(String(error), true));
follow();
