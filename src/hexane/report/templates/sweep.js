"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const $ = (s) => document.querySelector(s);
const el = (name, attrs = {}, ...kids) => { const e = document.createElement(name); for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v); e.append(...kids); return e; };
const sv = (name, attrs, text) => { const e = document.createElementNS("http://www.w3.org/2000/svg", name); for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v); if (text !== undefined) e.textContent = text; return e; };
const num = (v) => v === null || v === undefined ? "–" : typeof v !== "number" ? String(v) : v === 0 ? "0" : Number.isInteger(v) ? v.toLocaleString("en") : Math.abs(v) >= 1e-3 && Math.abs(v) < 1e5 ? String(+v.toPrecision(4)) : v.toExponential(2);
D.rows.forEach((r) => { if (typeof r.difference === "number") r.differs = Math.abs(r.difference); });
const names = D.rows.some((r) => "differs" in r) ? [...D.names, "differs"] : D.names;
const numeric = names.filter((n) => D.rows.some((r) => typeof r[n] === "number"));
const texts = names.filter((n) => n !== "error" && !numeric.includes(n) && D.rows.some((r) => r[n]));
const COLOURS = ["#0b7285", "#e8590c", "#7048a8", "#2b8a3e", "#c2255c", "#f08c00", "#1864ab", "#5c940d", "#862e9c", "#495057"];
let order = null, down = false;

function test(row, word) {
  const found = word.match(/^(\w+)(<=|>=|=|<|>)(.+)$/);
  if (!found || !names.includes(found[1])) return names.some((n) => String(row[n] ?? "").toLowerCase().includes(word.toLowerCase()));
  const [, name, sign, text] = found, value = row[name];
  if (sign === "=") return String(value).toLowerCase() === text.toLowerCase();
  if (typeof value !== "number") return false;
  return sign === "<" ? value < +text : sign === ">" ? value > +text : sign === "<=" ? value <= +text : value >= +text;
}
const shown = () => { const words = $("#filter").value.trim().split(/\s+/).filter(Boolean); return D.rows.filter((r) => words.every((w) => test(r, w))); };

function table(rows) {
  const sorted = order === null ? rows : [...rows].sort((a, b) => { const x = a[order], y = b[order]; if (x == null || y == null) return (x == null) - (y == null); return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1); });
  const head = el("tr", {}, ...names.map((n) => { const h = el("th", order === n ? { "aria-sort": down ? "descending" : "ascending" } : {}, n); h.onclick = () => { down = order === n && !down; order = n; draw(); }; return h; }));
  const body = sorted.map((r) => el("tr", {}, ...names.map((n) => el("td", numeric.includes(n) ? { class: "n" } : {}, num(r[n])))));
  $("#table").replaceChildren(el("thead", {}, head), el("tbody", {}, ...body));
  $("#count").textContent = `${rows.length} of ${D.rows.length} rows`;
}

function front(points) {
  const best = [], sorted = [...points].sort((a, b) => a.x - b.x || a.y - b.y);
  for (const p of sorted) if (!best.length || p.y < best[best.length - 1].y) best.push(p);
  return best;
}

function plot(rows) {
  const X = $("#x").value, Y = $("#y").value, C = $("#colour").value, W = 900, H = 380, L = 70, B = 46;
  const points = rows.filter((r) => typeof r[X] === "number" && typeof r[Y] === "number").map((r) => ({ x: r[X], y: r[Y], r }));
  const svg = sv("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `${Y} over ${X}` });
  const range = (k) => { const v = points.map((p) => p[k]), a = Math.min(...v), b = Math.max(...v), m = (b - a || Math.abs(a) || 1) * 0.06; return [a - m, b + m]; };
  if (points.length) {
    const [x0, x1] = range("x"), [y0, y1] = range("y");
    const px = (v) => L + (v - x0) / (x1 - x0) * (W - L - 16), py = (v) => H - B - (v - y0) / (y1 - y0) * (H - B - 16);
    for (let i = 0; i <= 4; i++) {
      const x = x0 + (x1 - x0) * i / 4, y = y0 + (y1 - y0) * i / 4;
      svg.append(sv("line", { class: "grid", x1: L, x2: W - 16, y1: py(y), y2: py(y) }), sv("text", { x: L - 6, y: py(y) + 4, "text-anchor": "end" }, num(y)), sv("text", { x: px(x), y: H - B + 18, "text-anchor": "middle" }, num(x)));
    }
    svg.append(sv("path", { class: "front", d: front(points).map((p, i) => `${i ? "L" : "M"}${px(p.x)} ${py(p.y)}`).join("") }));
    const kinds = [...new Set(points.map((p) => String(p.r[C])))];
    for (const p of points) {
      const dot = sv("circle", { cx: px(p.x), cy: py(p.y), r: 5, fill: COLOURS[kinds.indexOf(String(p.r[C])) % COLOURS.length], "fill-opacity": 0.8 });
      dot.append(sv("title", {}, `${p.r.model} ${p.r.chip} ${p.r.weights} ${p.r.options}: ${num(p.x)}, ${num(p.y)}`)); svg.append(dot);
    }
    kinds.slice(0, 10).forEach((k, i) => svg.append(sv("circle", { cx: W - 150, cy: 20 + 16 * i, r: 4, fill: COLOURS[i] }), sv("text", { x: W - 140, y: 24 + 16 * i }, k)));
  }
  svg.append(sv("text", { x: (W + L) / 2, y: H - 6, "text-anchor": "middle" }, X), sv("text", { x: 12, y: 12 }, Y));
  $("#plot").replaceChildren(svg);
}

function heat(rows) {
  const down = $("#down").value, value = $("#value").value, chips = [...new Set(rows.map((r) => r.chip))], kinds = [...new Set(rows.map((r) => String(r[down])))];
  const mean = (k, c) => { const v = rows.filter((r) => r.chip === c && String(r[down]) === k && typeof r[value] === "number").map((r) => r[value]); return v.length ? v.reduce((a, b) => a + b) / v.length : null; };
  const cells = kinds.map((k) => chips.map((c) => mean(k, c))), all = cells.flat().filter((v) => v !== null), low = Math.min(...all), high = Math.max(...all);
  const body = kinds.map((k, i) => el("tr", {}, el("th", {}, k), ...cells[i].map((v) => el("td", v === null ? {} : { style: `background:color-mix(in srgb, var(--engine) ${high > low ? Math.round(70 * (v - low) / (high - low)) : 0}%, var(--card))` }, num(v)))));
  $("#heat").replaceChildren(el("thead", {}, el("tr", {}, el("th", {}, down), ...chips.map((c) => el("th", {}, c)))), el("tbody", {}, ...body));
}

function draw() { const rows = shown(); table(rows); plot(rows); heat(rows); }
function choose(id, options, first) { const s = $(id); options.forEach((n) => s.append(el("option", {}, n))); s.value = first.find((n) => options.includes(n)) || options[0] || ""; s.onchange = draw; }
choose("#x", numeric, ["latency_us", "engine_us"]); choose("#y", numeric, ["differs", "engine", "energy_mj"]); choose("#colour", texts, ["weights", "chip"]);
choose("#down", [...texts.filter((n) => n !== "chip"), "batch"], ["weights", "model"]); choose("#value", numeric, ["latency_us", "engine"]);
$("#filter").oninput = draw; draw();
