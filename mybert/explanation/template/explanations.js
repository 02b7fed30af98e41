const ROWS = 20;
const byId = (id) => document.getElementById(id);

function add(parent, name, text = "", className = "") {
  const element = document.createElement(name);
  if (text !== "") element.textContent = text;
  if (className) element.className = className;
  parent.append(element);
  return element;
}

const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(Math.abs(value) < 1 ? 3 : 2);
const plain = (value) => (value < 0 ? "−" : "") + Math.abs(value).toFixed(3);

// A word or token in the colour of its value
function addWord(parent, text, value, largest, showValues) {
  const strength = largest ? Math.round((100 * Math.abs(value)) / largest) : 0;
  const word = add(parent, "span", text, strength < 2 ? "word" : `word ${value > 0 ? "up" : "down"}`);
  word.style.setProperty("--strength", `${strength}%`);
  word.title = `${text}: ${signed(value)}`;
  if (showValues && strength >= 2) add(word, "small", signed(value));
}

function addTable(parent, titles, rows) {
  const table = add(parent, "table");
  const head = add(add(table, "thead"), "tr");
  const kind = (place) => place === titles.length - 1 ? "number" : "text"; // the last column has numbers
  titles.forEach((title, place) => { add(head, "th", title, kind(place)).scope = "col"; });
  const body = add(table, "tbody");
  for (const row of rows) {
    const line = add(body, "tr");
    row.forEach((cell, place) => { add(line, "td", cell, kind(place)).dir = "auto"; });
  }
}

function addExplanation(card, found, state, isPrediction) {
  const block = add(card, "div", "", "target");
  if (!isPrediction) add(add(block, "p", "", "note"), "b", found.target).dir = "auto";
  const largest = Math.max(...found.words.map(Math.abs), ...found.tokens.map((token) => Math.abs(token[2])));
  let token = 0;
  for (const [column, parts] of found.texts) {
    const passage = add(block, "p", "", "passage");
    passage.dir = "auto";
    if (found.texts.length > 1) add(passage, "span", column, "column");
    for (const [text, word] of parts) {
      if (word === null) passage.append(text);
      else if (state.unit === "words") addWord(passage, text, found.words[word], largest, state.values);
      else for (; token < found.tokens.length && found.tokens[token][1] <= word; token += 1) addWord(passage, found.tokens[token][0], found.tokens[token][2], largest, state.values);
    }
  }
  const names = found.texts.flatMap(([, parts]) => parts).filter(([, word]) => word !== null);
  const details = add(block, "details");
  add(details, "summary", `Values (${found.words.length} ${found.words.length === 1 ? "word" : "words"})`);
  details.addEventListener("toggle", () => {
    if (!details.open || details.querySelector("table")) return;
    const error = found.error === null ? "" : `, completeness error ${found.error.toExponential(1)} (${found.steps} steps)`;
    add(details, "p", `Score ${plain(found.score)}; with all words masked ${plain(found.baseline)}${error}.`, "note");
    const sorted = names.map(([text, word]) => [text, found.words[word]]).sort((one, other) => Math.abs(other[1]) - Math.abs(one[1]));
    const box = add(details, "div", "", "scroll");
    Object.assign(box, { role: "group", tabIndex: 0, ariaLabel: "Values" });
    addTable(box, ["word", "value"], sorted.map(([text, value]) => [text, signed(value)]));
  });
}

function words(rows) {
  const state = { page: 0, unit: "words", values: false, found: rows };
  const largest = rows.map((row) => Math.max(0, ...row.explanations.flatMap((one) => one.words.map(Math.abs))));
  const errors = rows.map((row) => Math.max(0, ...row.explanations.map((one) => Math.abs(one.error ?? 0))));
  const texts = rows.map((row) => [row.prediction, row.label ?? "", row.text, ...row.explanations.flatMap((one) => [one.target, ...one.texts.flatMap(([, parts]) => parts.map(([text]) => text))])].join("").toLowerCase());
  const kinds = rows.map((row) => row.prediction.replace(/ \([\d.]+%\)$/, ""));
  const choices = [...new Set(kinds)].sort();
  byId("which").append(new Option("any", "any"), ...(choices.length > 60 ? [] : choices.map((choice, number) => new Option(choice.slice(0, 60), String(number)))));

  function update() {
    const wanted = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
    const which = byId("which").value;
    const order = { place: () => 0, value: (one, other) => largest[other] - largest[one], error: (one, other) => errors[other] - errors[one] }[byId("order").value];
    state.found = [...rows.keys()].filter((row) => (which === "any" || kinds[row] === choices[Number(which)]) && wanted.every((word) => texts[row].includes(word))).sort(order);
    state.unit = byId("unit").value;
    state.values = byId("values").checked;
    state.page = Math.min(state.page, Math.max(0, Math.ceil(state.found.length / ROWS) - 1));
    draw();
  }

  function draw() {
    const shown = document.createElement("div");
    for (const number of state.found.slice(state.page * ROWS, (state.page + 1) * ROWS)) {
      const row = rows[number];
      const card = add(shown, "article", "", "card row");
      const title = add(card, "h3", row.place);
      title.append(" ");
      add(title, "strong", row.prediction).dir = "auto";
      if (row.label !== null) add(title, "span", `reference: ${row.label}`).dir = "auto";
      const isAlone = row.explanations.length === 1;
      for (const found of row.explanations) addExplanation(card, found, state, isAlone && kinds[number] === found.target);
      if (row.text) add(card, "p", row.text).dir = "auto";
      if (row.note) add(card, "p", `Nothing to explain: ${row.note}.`, "note");
    }
    byId("rows").replaceChildren(...shown.children);
    const pages = Math.max(1, Math.ceil(state.found.length / ROWS));
    byId("count").textContent = `${state.found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
    byId("page").textContent = `Page ${state.page + 1} of ${pages}`;
    byId("previous").disabled = state.page === 0;
    byId("next").disabled = state.page + 1 >= pages;
    byId("pager").hidden = pages < 2;
  }

  const turn = (pages) => { state.page += pages; draw(); byId("controls").scrollIntoView(); };
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  let waiting;
  byId("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(() => { state.page = 0; update(); }, 150); });
  for (const id of ["which", "order"]) byId(id).addEventListener("change", () => { state.page = 0; update(); });
  for (const id of ["unit", "values"]) byId(id).addEventListener("change", update);
  byId("controls").hidden = false;
  update();
}

function attention(examples, rows) {
  if (!examples.length) return;
  const [row, layer, head] = ["a-row", "a-layer", "a-head"].map(byId);
  for (const example of examples) example.bytes = Uint8Array.from(atob(example.values), (character) => character.charCodeAt(0));
  row.append(...examples.map((example, number) => new Option(rows[example.record].place, String(number))));

  function choose() {
    const example = examples[Number(row.value)];
    layer.replaceChildren(...Array.from({ length: example.layers }, (_, number) => new Option(number + 1, number)));
    head.replaceChildren(new Option("mean of all", "mean"), ...Array.from({ length: example.heads }, (_, number) => new Option(number + 1, number)));
    layer.value = String(example.layers - 1);
    byId("heads").style.gridTemplateColumns = `repeat(${example.heads}, 1fr)`;
    byId("heads").replaceChildren();
    for (let one = 0; one < example.layers; one += 1) for (let other = 0; other < example.heads; other += 1) addThumbnail(example, one, other);
    draw();
  }

  const size = (example) => example.tokens.length;
  const at = (example, one, other, from, to) => example.bytes[((one * example.heads + other) * size(example) + from) * size(example) + to] / 255;

  function addThumbnail(example, one, other) {
    const button = add(byId("heads"), "button");
    Object.assign(button, { type: "button", title: `layer ${one + 1}, head ${other + 1}` });
    button.setAttribute("aria-label", button.title);
    Object.assign(button.dataset, { layer: one, head: other });
    const canvas = add(button, "canvas");
    canvas.width = canvas.height = size(example);
    const image = canvas.getContext("2d").createImageData(size(example), size(example));
    for (let cell = 0; cell < size(example) ** 2; cell += 1) image.data.set([58, 118, 240, 255 * Math.sqrt(at(example, one, other, 0, cell))], 4 * cell);
    canvas.getContext("2d").putImageData(image, 0, 0);
    button.addEventListener("click", () => { layer.value = String(one); head.value = String(other); draw(); });
  }

  function draw() {
    const example = examples[Number(row.value)];
    const { tokens } = example;
    const heads = head.value === "mean" ? [...Array(example.heads).keys()] : [Number(head.value)];
    const value = (from, to) => heads.reduce((sum, other) => sum + at(example, Number(layer.value), other, from, to), 0) / heads.length;
    for (const button of byId("heads").children) button.setAttribute("aria-pressed", String(button.dataset.layer === layer.value && button.dataset.head === head.value));
    const matrix = byId("matrix");
    matrix.replaceChildren();
    const first = add(add(matrix, "thead"), "tr");
    add(first, "td");
    for (const token of tokens) add(first, "th", token).scope = "col";
    const body = add(matrix, "tbody");
    tokens.forEach((token, from) => {
      const line = add(body, "tr");
      add(line, "th", token).scope = "row";
      tokens.forEach((other, to) => {
        const cell = add(line, "td");
        cell.style.background = `color-mix(in srgb, var(--accent) ${(100 * value(from, to)).toFixed(0)}%, transparent)`;
        cell.title = `${token} reads ${other}: ${(100 * value(from, to)).toFixed(1)}%`;
      });
    });
    byId("most").replaceChildren();
    addTable(byId("most"), ["token", "reads most", "share"], tokens.map((token, from) => {
      const shares = tokens.map((_, to) => value(from, to));
      const best = shares.indexOf(Math.max(...shares));
      return [token, tokens[best], `${(100 * shares[best]).toFixed(1)}%`];
    }));
  }

  row.addEventListener("change", choose);
  layer.addEventListener("change", draw);
  head.addEventListener("change", draw);
  choose();
}

unpack(byId("data").textContent).then((data) => {
  words(data.rows);
  attention(data.attention, data.rows);
  document.body.dataset.ready = "true";
});
