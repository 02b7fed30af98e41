"use strict";

const PAGE = 50;
const isNumeric = (header) => ["number", "share"].includes(header.dataset.kind);

function theme() {
  const button = document.getElementById("theme");
  const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const show = () => { button.textContent = isDark() ? "Light" : "Dark"; };
  button.hidden = false;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  show();
}

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// A sentence with its entities: parts of text, label, colour, and whether the other side lacks this entity.
function entities(parts) {
  return parts.flatMap(([text, label, colour, isWrong]) => {
    const part = document.createElement(label ? "mark" : "span");
    part.textContent = text;
    if (label) {
      part.className = `entity${isWrong ? " wrong" : ""}`;
      part.style.setProperty("--tone", `var(--series-${colour})`);
      const name = document.createElement("b");
      name.textContent = label;
      part.append("\u00a0", name);
    }
    return [part, " "];
  });
}

// The rows of a table: [row, error, reference, prediction, confidence if there is one, input]
async function predictions(card) {
  if (!("DecompressionStream" in window)) return; // the first rows stay
  const rows = await unpack(card.querySelector(".packed").textContent);
  const headers = [...card.querySelectorAll("th")];
  const [search, which] = [card.querySelector("input"), card.querySelector(".which")]; // null: no row is incorrect
  const lists = [];
  const state = { column: -1, ascending: false, page: 0, found: rows };
  const searched = (row) => [...row.slice(0, 1).filter((name) => typeof name === "string"), ...row.slice(2)]; // ids, no row numbers
  const texts = rows.map((row) => searched(row).map((value) => (Array.isArray(value) ? value.map(([text, label]) => `${text} ${label}`).join(" ") : value)).join("\u0000").toLowerCase());

  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    header.replaceChildren(button);
    button.addEventListener("click", () => {
      state.ascending = state.column === column ? !state.ascending : !isNumeric(header);
      state.column = column;
      update();
    });
    if (header.dataset.kind === "choice") lists.push([column, addList(button.textContent, column)]);
  });

  function addList(name, column) {
    const label = document.createElement("label");
    const list = document.createElement("select");
    const values = [...new Set(rows.map((row) => String(row[column])))].sort();
    list.append(new Option("any", "any"), ...values.map((value, number) => new Option(value, String(number))));
    list.values = values;
    label.append(`${name[0].toUpperCase()}${name.slice(1)} `, list);
    card.querySelector(".choices").append(label);
    list.addEventListener("change", update);
    return list;
  }

  function keeps(row, number, words) {
    if (which && which.value !== "all" && (row[1] > 0) !== (which.value === "wrong")) return false;
    if (lists.some(([column, list]) => list.value !== "any" && String(row[column]) !== list.values[Number(list.value)])) return false;
    return words.every((word) => texts[number].includes(word));
  }

  function update() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    state.found = rows.filter((row, number) => keeps(row, number, words));
    if (state.column >= 0) {
      const [column, sign] = [state.column, state.ascending ? 1 : -1];
      const compare = isNumeric(headers[column]) ? (a, b) => (a ?? -Infinity) - (b ?? -Infinity) : (a, b) => (String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0);
      state.found.sort((one, other) => sign * compare(one[column], other[column]));
    }
    state.page = 0;
    draw();
  }

  function draw() {
    const pages = Math.max(1, Math.ceil(state.found.length / PAGE));
    const shown = state.found.slice(state.page * PAGE, (state.page + 1) * PAGE);
    const body = document.createElement("tbody");
    for (const row of shown) {
      const line = body.insertRow();
      line.className = which && row[1] > 0 ? "wrong" : "";
      row.forEach((value, column) => {
        const cell = line.insertCell();
        const isNumber = typeof value === "number" || value === null;
        cell.className = isNumber ? "number" : Array.isArray(value) || value.length > 40 ? "text long" : value.length < 20 ? "text short" : "text";
        cell.dataset.name = headers[column].textContent;
        cell.dir = isNumber ? "ltr" : "auto";
        if (Array.isArray(value)) return cell.replaceChildren(...entities(value));
        cell.textContent = value === null ? "-" : headers[column].dataset.kind === "share" ? `${(100 * value).toFixed(1)}%` : isNumber ? value.toLocaleString("en") : value;
      });
    }
    card.querySelector("tbody").replaceWith(body);
    headers.forEach((header, column) => header.setAttribute("aria-sort", column !== state.column ? "none" : state.ascending ? "ascending" : "descending"));
    card.querySelector(".count").textContent = `${state.found.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows`;
    card.querySelector(".pager").hidden = pages === 1;
    card.querySelector(".page").textContent = `Page ${state.page + 1} of ${pages.toLocaleString("en")}`;
    card.querySelector(".previous").disabled = state.page === 0;
    card.querySelector(".next").disabled = state.page + 1 >= pages;
  }

  function turn(pages) {
    state.page += pages;
    draw();
    card.querySelector(".scroll").scrollTop = 0;
  }

  card.querySelector(".download").addEventListener("click", () => {
    const plain = (value) => (value === null ? "" : Array.isArray(value) ? value.map(([text, label]) => (label ? `[${text} ${label}]` : text)).join(" ") : String(value));
    const cell = (value) => {
      const text = plain(value);
      const isFormula = /^[=+@\t\r\n＝＋＠－-]/.test(text) && Number.isNaN(Number(text)); // as --spreadsheet-safe
      return `"${(isFormula ? `'${text}` : text).replaceAll('"', '""')}"`;
    };
    const lines = [headers.map((header) => header.textContent), ...state.found].map((row) => row.map(cell).join(","));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`\ufeff${lines.join("\r\n")}\r\n`], { type: "text/csv" }));
    link.download = "rows.csv";
    link.click();
    URL.revokeObjectURL(link.href);
  });

  let waiting;
  search.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(update, 150); });
  which?.addEventListener("change", update);
  card.querySelector(".previous").addEventListener("click", () => turn(-1));
  card.querySelector(".next").addEventListener("click", () => turn(1));
  card.querySelector(".controls").hidden = false;
  draw();
  card.dataset.ready = "true";
}

// Counts and costs at a threshold, from the nearest point of the label's curve.
function thresholds(card) {
  const curves = JSON.parse(card.dataset.curves);
  const part = (name) => card.querySelector(`[data-is="${name}"]`);
  const written = (number) => number.toLocaleString("en", { maximumFractionDigits: 2 });
  part("label").append(...curves.map((curve, number) => new Option(curve.name, String(number))));

  function counts(curve, point) {
    const found = Math.round(curve.recall[point] * curve.rows);
    const mistaken = curve.precision[point] > 0 ? Math.round((curve.recall[point] * curve.rows) / curve.precision[point] - found) : 0;
    const missed = curve.rows - found;
    return { found, missed, mistaken, cost: missed * Number(part("missed").value) + mistaken * Number(part("mistaken").value) };
  }

  function show() {
    const curve = curves[Number(part("label").value)];
    const threshold = Number(part("threshold").value);
    const points = curve.threshold.map((_, point) => point);
    const above = points.find((point) => curve.threshold[point] >= threshold) ?? points.at(-1);
    const cheapest = points.reduce((best, point) => (counts(curve, point).cost < counts(curve, best).cost ? point : best));
    const [here, least] = [counts(curve, above), counts(curve, cheapest)];
    card.querySelector("output").textContent = threshold.toFixed(2);
    const [precision, recall] = [curve.precision[above], curve.recall[above]];
    const percent = (share) => `${(100 * share).toFixed(1)}%`;
    part("answer").textContent =
      `Precision ${percent(precision)}, recall ${percent(recall)}, F1 ${percent((2 * precision * recall) / (precision + recall || 1))}. ` +
      `Rows of this label: ${written(curve.rows)}, of which ${written(here.found)} found and ${written(here.missed)} missed. ` +
      `Other rows found by mistake: ${written(here.mistaken)}. The cost is ${written(here.cost)}. ` +
      `The least cost, ${written(least.cost)}, is at about ${curve.threshold[cheapest].toFixed(2)}.`;
  }

  card.addEventListener("input", show);
  card.hidden = false;
  show();
}

theme();
document.querySelectorAll(".thresholds").forEach(thresholds);
document.querySelectorAll(".predictions").forEach(predictions);
