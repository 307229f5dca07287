// The fields with which a person tries a model: a drawing, a picture, a row, a sentence. The answer is drawn as bars.
"use strict";

function prepareTries() {
  for (const form of document.querySelectorAll("form[data-try]:not([data-ready])")) prepare(form);
}

function prepare(form) {
  form.dataset.ready = "";
  const canvas = form.querySelector("canvas"), file = form.querySelector("input[type=file]");
  const output = form.querySelector("output");
  let drawn = false;

  const clear = () => {
    if (!canvas) return;
    const pen = canvas.getContext("2d");
    pen.fillStyle = "#fff"; pen.fillRect(0, 0, canvas.width, canvas.height);
    drawn = false;
  };

  const show = answer => {
    const [said] = answer.predictions;
    output.replaceChildren();
    const add = (tag, text, name) => Object.assign(output.appendChild(document.createElement(tag)), {textContent: text, className: name || ""});
    if (said.problem) return add("p", said.problem, "trouble");
    add("p", said.class ?? (Array.isArray(said.value) ? said.value.map(value => value.toPrecision(5)).join(", ") : Number(said.value).toPrecision(5)), "answer");
    for (const [name, share] of Object.entries(said.probabilities ?? {}).sort((one, other) => other[1] - one[1]).slice(0, 5)) {
      const line = add("div", "", "share");
      line.append(Object.assign(document.createElement("span"), {textContent: name}), Object.assign(document.createElement("meter"), {value: share}),
        `${(share * 100).toFixed(1)} %`);
      line.querySelector("meter").setAttribute("aria-label", name);
    }
  };

  const send = async (body, type) => {
    const token = document.querySelector("meta[name=token]")?.content;
    const answer = await fetch(form.dataset.try, {method: "POST", body, headers: {"Content-Type": type, ...(token && {"X-Podium-Token": token})}});
    const said = await answer.json();
    if (answer.ok) show(said);
    else output.replaceChildren(Object.assign(document.createElement("p"), {className: "trouble", textContent: said.error}));
  };

  const entered = async () => {
    const kind = form.dataset.kind;
    if (kind === "image" && file.files.length) return send(file.files[0], file.files[0].type);
    if (kind === "image") return drawn && send(await new Promise(done => canvas.toBlob(done, "image/png")), "image/png");
    if (kind === "text") return send(JSON.stringify({texts: [form.elements.text.value]}), "application/json");
    const row = {};
    for (const field of form.querySelectorAll("input[name]"))
      if (field.value.trim() !== "") row[field.name] = "number" in field.dataset && isFinite(field.value) ? Number(field.value) : field.value;
      else row[field.name] = null;
    return send(JSON.stringify({rows: [row]}), "application/json");
  };

  form.addEventListener("submit", event => { event.preventDefault(); entered().catch(error => output.textContent = String(error)); });
  form.addEventListener("reset", () => { clear(); output.replaceChildren(); });
  if (!file) return;
  file.addEventListener("change", () => form.requestSubmit());
  const drop = form.querySelector(".drop");
  drop.addEventListener("dragover", event => event.preventDefault());
  drop.addEventListener("drop", event => { event.preventDefault(); file.files = event.dataTransfer.files; form.requestSubmit(); });
  if (!canvas) return;
  clear();
  const pen = canvas.getContext("2d");
  Object.assign(pen, {lineWidth: 22, lineCap: "round", lineJoin: "round", strokeStyle: "#000"});
  const at = event => { const box = canvas.getBoundingClientRect();
    return [(event.clientX - box.left) * canvas.width / box.width, (event.clientY - box.top) * canvas.height / box.height]; };
  canvas.addEventListener("pointerdown", event => { canvas.setPointerCapture(event.pointerId); file.value = ""; drawn = true; pen.beginPath(); pen.moveTo(...at(event)); pen.lineTo(...at(event)); pen.stroke(); });
  canvas.addEventListener("pointermove", event => { if (event.buttons) { pen.lineTo(...at(event)); pen.stroke(); } });
  canvas.addEventListener("pointerup", () => form.requestSubmit());
}

prepareTries();
