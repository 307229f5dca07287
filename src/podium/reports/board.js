// Figures in the colors of the page, and a leaderboard that is sorted, filtered and narrowed, whose picked trials stand out in them.
"use strict";

const board = (() => {
  const COLORS = ["#d64545", "#2f9153", "#9066c0", "#2f73bd", "#b8801a", "#0f8b8d", "#c2528b", "#7f8993"];
  const DASHES = ["solid", "dash", "dot", "dashdot"], SYMBOLS = ["circle", "square", "diamond", "triangle-up"];
  const READ = /^(.+?)(<=|>=|!=|<|>|=)(.*)$/;
  let picked = [], sort = "", filter = "", hidden = [], asked = "";
  const self = {dress, arrange, marked, listen, query, redraw() {}, ask() {}};

  function load() {
    const state = new URLSearchParams(location.hash.slice(1));
    const list = name => (state.get(name) ?? "").split(",").filter(Boolean);
    [picked, sort, filter, hidden] = [list("picked"), state.get("sort") ?? "", state.get("filter") ?? "", list("hidden")];
  }

  // The state is in the address, so that a view is kept by a reload and can be sent to somebody.
  function save() {
    const parts = Object.entries({picked: picked.join(), sort, filter, hidden: hidden.join()}).filter(([, value]) => value);
    history.replaceState(null, "", `${location.pathname}${location.search}#${new URLSearchParams(parts)}`);
  }

  const element = (name, given = {}, ...children) => {
    const made = Object.assign(document.createElement(name), given);
    made.append(...children);
    return made;
  };
  const table = root => root.querySelector("table.board");
  const heads = root => [...table(root).rows[0].cells].filter(cell => cell.dataset.head);
  const rows = root => [...table(root).rows].slice(1);
  const cell = (row, head) => row.cells[head.cellIndex];
  const text = (row, head) => { const shown = cell(row, head).textContent.trim(); return shown === "–" ? "" : shown; };
  const letter = number => { const at = picked.indexOf(number); return String.fromCharCode(65 + at % 26) + (at < 26 ? "" : Math.floor(at / 26)); };
  const color = number => COLORS[picked.indexOf(number) % COLORS.length];

  function compare(one, other) {
    if (!one || !other) return one ? -1 : other ? 1 : 0;
    const [left, right] = [Number(one), Number(other)];
    return Number.isNaN(left) || Number.isNaN(right) ? one.localeCompare(other, "en", {numeric: true}) : left - right;
  }

  function matches(row, word, columns) {
    const [, name, sign, wanted] = READ.exec(word) ?? [];
    const head = name && columns.find(head => head.dataset.head.toLowerCase() === name.toLowerCase());
    if (!head) return row.textContent.toLowerCase().includes(word.toLowerCase());
    const shown = text(row, head), order = compare(shown, wanted);
    if (sign === "=" || sign === "!=") return (order === 0 || shown.toLowerCase() === wanted.toLowerCase()) === (sign === "=");
    return shown !== "" && (order === 0 ? sign.length === 2 : order < 0 === (sign[0] === "<"));
  }

  // Puts the state on a page that is shown, or will be.
  function dress(root) {
    if (!table(root)) return;
    if (!root.querySelector(".tools")) furnish(root);
    const columns = heads(root), lines = rows(root), words = filter.split(/\s+/).filter(Boolean);
    const by = columns.find(head => head.dataset.head === sort.replace(/^-/, "")), turn = sort.startsWith("-") ? -1 : 1;
    if (by) lines.sort((one, other) => (text(one, by) && text(other, by) ? turn : 1) * compare(text(one, by), text(other, by)));
    else lines.sort((one, other) => one.dataset.at - other.dataset.at);
    arrange(table(root).tBodies[0], [table(root).rows[0], ...lines]);
    for (const row of lines) {
      const number = row.dataset.number, box = row.querySelector("input");
      row.hidden = !words.every(word => matches(row, word, columns));
      row.classList.toggle("picked", picked.includes(number));
      box.checked = picked.includes(number);
      box.style.accentColor = box.checked ? color(number) : "";
      box.nextSibling.textContent = box.checked ? letter(number) : "";
    }
    for (const head of columns) {
      const own = head.dataset.head === sort.replace(/^-/, "");
      head.ariaSort = own ? turn < 0 ? "descending" : "ascending" : "none";
      for (const row of [head.parentElement, ...lines]) cell(row, head).hidden = hidden.includes(head.dataset.head);
    }
    const left = lines.filter(row => !row.hidden).length;
    root.querySelector(".tools output").textContent = words.length ? `${left} of ${lines.length} trials` : "";
    contrast(root);
  }

  // Puts the rows of a table in order, without taking the focus from one.
  function arrange(body, ordered) {
    if (ordered.length === body.childNodes.length && ordered.every((row, at) => body.childNodes[at] === row)) return;
    const held = document.activeElement;
    body.replaceChildren(...ordered);
    if (body.contains(held)) held.focus({preventScroll: true});
  }

  function furnish(root) {
    const columns = heads(root);
    table(root).rows[0].prepend(element("th", {textContent: "pick", scope: "col"}));
    rows(root).forEach((row, at) => {
      const name = row.querySelector("[data-name]").textContent.trim();
      row.dataset.at = at;
      row.prepend(element("td", {className: "pick"}, element("label", {}, element("input", {type: "checkbox", ariaLabel: `pick ${name}`}), "")));
    });
    for (const head of columns) head.replaceChildren(element("button", {type: "button", className: "sort", textContent: head.textContent}));
    const boxes = columns.map(head => element("label", {}, element("input", {type: "checkbox", value: head.dataset.head, checked: !hidden.includes(head.dataset.head)}), ` ${head.dataset.head}`));
    const choices = element("details", {}, element("summary", {textContent: "Columns"}), element("div", {className: "choices"}, ...boxes));
    const tools = element("div", {className: "tools"},
      element("label", {}, "Filter ", element("input", {type: "search", value: filter, placeholder: "lr<0.01 state=failed"})), choices, element("output"));
    const compared = element("section", {className: "compared", hidden: true});
    table(root).parentElement.before(tools);
    table(root).parentElement.after(compared);
  }

  // Shows the picked trials side by side: what they differ in, and their curves over each other.
  function contrast(root) {
    const place = root.querySelector(".compared"), columns = heads(root);
    const lines = picked.map(number => rows(root).find(row => row.dataset.number === number)).filter(Boolean);
    place.hidden = !picked.length;
    if (!picked.length) return place.replaceChildren();
    const differing = columns.filter(head => cell(head.parentElement, head).dataset.head === "trial" || new Set(lines.map(row => text(row, head))).size > 1);
    const body = lines.map(row => element("tr", {}, element("td", {className: "pick"}, mark(row.dataset.number)), ...differing.map(head => {
      const copy = cell(row, head).cloneNode(true);
      copy.hidden = false;
      return copy;
    })));
    const top = element("tr", {}, element("th", {textContent: "pick", scope: "col"}), ...differing.map(head => element("th", {textContent: head.dataset.head, className: head.className, scope: "col"})));
    const wide = element("div", {className: "wide", tabIndex: 0, role: "region", ariaLabel: "Picked trials"}, element("table", {}, element("tbody", {}, top, ...body)));
    const drawing = place.querySelector("[data-figure]") ?? element("div", {role: "img", ariaLabel: "Curves of the picked trials"});
    drawing.dataset.figure = "picked";
    const said = lines.length > 1 ? "Only what they differ in is listed." : "Pick a second one, here or in a figure, to compare them.";
    const clear = element("button", {type: "button", textContent: "Clear", className: "clear"});
    const held = place.contains(document.activeElement) && document.activeElement.className;
    place.replaceChildren(element("h2", {textContent: `Picked: ${picked.length} ${picked.length > 1 ? "trials" : "trial"}`}), element("p", {}, `${said} `, clear), wide, drawing);
    if (held === "clear") clear.focus();
  }

  function mark(number) {
    const shown = element("b", {textContent: letter(number)});
    shown.style.borderColor = color(number);
    return shown;
  }

  // Gives a figure the colors of the page, light or dark.
  function paint(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  function themed({data, layout}) {
    Object.assign(layout, {paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: {...layout.font, color: paint("--ink")}});
    for (const axis of Object.keys(layout).filter(name => /^[xy]axis/.test(name)))
      Object.assign(layout[axis], {gridcolor: paint("--line"), zerolinecolor: paint("--line"), linecolor: paint("--line")});
    for (const trace of data.filter(trace => trace.type === "heatmap")) trace.textfont = {color: paint("--ink")};
  }

  // Returns figures with the picked trials on top; traces say in meta.trials whose points they have, in order.
  function marked(figures) {
    const shown = structuredClone(figures);
    for (const [name, {data, layout}] of Object.entries(shown)) {
      if (!data.some(trace => trace.meta?.trials)) continue;
      if (name !== "curves") layout.dragmode = "select";
      const over = overlays(data);
      if (!over.length) continue;
      if (name === "curves") shown.picked = {data: over.map(trace => ({...trace, showlegend: true, hoverinfo: "all"})), layout: whole(layout)};
      for (const trace of data) trace.opacity = 0.3;
      data.push(...over);
    }
    Object.values(shown).forEach(themed);
    return shown;
  }

  function overlays(data) {
    return picked.flatMap(number => data.filter(trace => trace.meta?.trials).flatMap(trace => {
      const at = trace.meta.trials.indexOf(Number(number)), each = trace.x.length / trace.meta.trials.length;
      return at < 0 ? [] : [overlay(number, trace, at * each, each)];
    }));
  }

  function overlay(number, trace, from, each) {
    const lines = each > 1 || trace.line, at = picked.indexOf(number), x = trace.x.slice(from, from + each), y = trace.y.slice(from, from + each);
    const last = y.findLastIndex(value => value !== null), row = rows(document).find(row => row.dataset.number === number);
    return {
      type: "scatter", name: `${letter(number)} ${row?.querySelector("[data-name]").textContent.trim() ?? number}`, x, y,
      mode: lines ? "lines+text" : "markers+text", showlegend: false, hoverinfo: "skip", cliponaxis: false,
      text: y.map((_, index) => index === last ? letter(number) : ""), textposition: lines ? "middle right" : "top center",
      line: {color: color(number), width: 3.5, dash: DASHES[at % DASHES.length]},
      marker: {color: color(number), size: 13, symbol: SYMBOLS[at % SYMBOLS.length]},
    };
  }

  // Returns a layout without the limits that all trials need.
  function whole(layout) {
    const {yaxis: {range, ...yaxis}, xaxis, ...others} = structuredClone(layout);
    xaxis.title.text = xaxis.title.text.split("<br>")[0];
    return {...others, xaxis, yaxis};
  }

  // Picks trials in a figure: one by a click, several by a box around points of theirs.
  const heard = new WeakSet();
  function listen(place) {
    if (heard.has(place) || !place.on) return;
    heard.add(place);
    const known = () => place.data.filter(trace => trace.meta?.trials);
    place.on("plotly_click", ({points: [point]}) => {
      const trials = point.data.meta?.trials;
      if (trials) toggle([String(trials[Math.floor(point.pointIndex * trials.length / point.data.x.length)])]);
    });
    place.on("plotly_selected", event => {
      if (!event?.range?.x) return;
      const {x, y} = event.range, inside = (value, [low, high]) => value !== null && value >= Math.min(low, high) && value <= Math.max(low, high);
      toggle(known().flatMap(trace => trace.meta.trials.filter((_, at) => {
        const each = trace.x.length / trace.meta.trials.length;
        return [...Array(each).keys()].some(step => inside(trace.x[at * each + step], x) && inside(trace.y[at * each + step], y));
      })).map(String), true);
    });
  }

  function toggle(numbers, only = false) {
    const others = picked.filter(number => !numbers.includes(number));
    picked = [...others, ...numbers.filter(number => only || !picked.includes(number))];
    changed();
  }

  function changed() {
    save();
    dress(document);
    self.redraw();
    if (query() !== asked) self.ask(asked = query());
  }

  // Which trials a server has to send rows and curves of, whatever their rank.
  function query() { return picked.length ? `picked=${picked.join()}` : ""; }

  document.addEventListener("change", ({target}) => {
    const row = target.closest("table.board tr"), choice = target.closest(".choices");
    if (row && target.type === "checkbox") toggle([row.dataset.number]);
    if (!choice) return;
    hidden = [...choice.querySelectorAll("input:not(:checked)")].map(box => box.value);
    changed();
  });
  document.addEventListener("input", ({target}) => {
    if (!target.matches(".tools [type=search]")) return;
    filter = target.value;
    save();
    dress(document);
  });
  document.addEventListener("click", ({target}) => {
    if (target.closest(".compared .clear")) { picked = []; changed(); return table(document).querySelector("input").focus(); }
    const head = target.closest("button.sort")?.parentElement.dataset.head;
    if (!head) return;
    sort = sort === head ? `-${head}` : sort === `-${head}` ? "" : head;
    save();
    dress(document);
  });

  load();
  asked = query();
  dress(document);
  return self;
})();
