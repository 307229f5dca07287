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
  if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== next.data) old.data = next.data; return; }
  if (old.matches("form.try") && labels(old) !== labels(next)) return old.replaceWith(next);  // of another champion
  if (old.matches("textarea")) return retype(old, next);
  if (old.matches("[data-figure], form.try, select, input")) return;
  for (const {name} of [...old.attributes]) if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const {name, value} of next.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const atEnd = old.matches("pre.log") && old.scrollHeight - old.scrollTop - old.clientHeight < 20;
  if (old.matches(".board tbody")) return becomeRows(old, [...next.rows]);
  becomeAll(old, [...next.childNodes]);
  if (atEnd) old.scrollTop = old.scrollHeight;
}

const labels = form => [...form.querySelectorAll("label")].map(label => label.textContent).join();

// What somebody types stays; else a text becomes what it is now.
function retype(old, next) {
  if (old.value === old.defaultValue) old.value = next.value;
  old.defaultValue = next.value;
}

// What is new goes between what stays, so that a table below it is not made anew.
function becomeAll(old, children) {
  let own = old.firstChild;
  children.forEach((child, at) => {
    const rest = children.slice(at + 1);
    if (own && !like(own, child) && !rest.some(later => like(own, later))) own = after(own, child) ?? own;
    const known = own;
    if (!own || (!like(own, child) && rest.some(later => like(own, later)))) return old.insertBefore(child, own);
    own = own.nextSibling;
    like(known, child) ? become(known, child) : known.replaceWith(child);
  });
  while (own) { const gone = own; own = own.nextSibling; gone.remove(); }
}

// Drops what is before the next sibling that is like a node; nothing if there is none.
function after(own, child) {
  let found = own;
  while (found && !like(found, child)) found = found.nextSibling;
  if (found) for (let each = own; each !== found;) { const gone = each; each = each.nextSibling; gone.remove(); }
  return found;
}

// The row of a list is that of its link, so that the focus stays with a run when a newer one comes above it; a form is that
// of its question, so that what it holds never goes with another one.
const link = node => node.nodeName === "TR" ? node.querySelector("a[href]")?.getAttribute("href") : undefined;
const key = node => node.nodeName + (node.dataset?.figure ?? node.dataset?.ask ?? link(node) ?? node.firstElementChild?.dataset.figure ?? node.firstElementChild?.nodeName ?? "");
const like = (one, other) => key(one) === key(other);

// A row of a leaderboard stays that of its trial, wherever it moves.
function becomeRows(body, rows) {
  const known = new Map([...body.rows].map(row => [row.dataset.number, row]));
  board.arrange(body, rows.map(row => {
    const own = known.get(row.dataset.number);
    if (own) become(own, row);
    return own ?? row;
  }));
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
  const shown = board.marked(figures);
  const places = [...main.querySelectorAll("[data-figure]")].filter(({dataset: {figure}}) => shown[figure] && (figure === "picked" || names.includes(figure)));
  if (!places.length) return;
  await loadPlotly();
  for (const place of places) {
    const {data, layout} = shown[place.dataset.figure];
    Plotly.react(place, data, layout, {responsive: true, displayModeBar: false});
    board.listen(place);
  }
}

const drawAll = () => draw(Object.keys(figures)).catch(error => tell(String(error), true));

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
  try {
    const answer = await fetch(form.dataset.post, {method: "POST", body, headers: {"Content-Type": "application/json", "X-Podium-Token": token}});
    const {said: text, error} = await answer.json();
    tell(text ?? error, !answer.ok);
    if (answer.ok) { form.closest("details")?.removeAttribute("open"); follow(); }
  } catch (error) {
    tell(`podium ui gave no answer: ${error.message}`, true);
  }
});

let source = null;
function follow() {
  source?.close();
  source = new EventSource(`${location.pathname}?${[location.search.slice(1), board.query()].filter(Boolean).join("&")}`);
  source.onopen = () => live.classList.add("on");
  source.onerror = () => live.classList.remove("on");
  source.addEventListener("over", () => { source.close(); live.classList.remove("on"); });
  source.onmessage = event => {
    const {html, figures: changed} = JSON.parse(event.data);
    if (html !== undefined) {
      const next = document.createElement("main");
      next.innerHTML = html.trim();
      localize(next);
      board.dress(next);
      become(main, next);
      prepareTries();
    }
    Object.assign(figures, changed);
    html === undefined ? draw(Object.keys(changed)).catch(error => tell(String(error), true)) : drawAll();
  };
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
Object.assign(board, {redraw: drawAll, ask: follow});
for (const log of document.querySelectorAll("pre.log")) log.scrollTop = log.scrollHeight;
drawAll();
follow();
