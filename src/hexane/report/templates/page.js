"use strict";
const D = JSON.parse(document.getElementById("data").textContent);
const $ = (s) => document.querySelector(s);
const el = (name, attrs = {}, ...kids) => { const e = document.createElement(name); for (const [k, v] of Object.entries(attrs)) k === "class" ? e.className = v : e.setAttribute(k, v); e.append(...kids); return e; };
const NS = "http://www.w3.org/2000/svg";
const sv = (name, attrs, text) => { const e = document.createElementNS(NS, name); for (const [k, v] of Object.entries(attrs || {})) e.setAttribute(k, v); if (text !== undefined) e.textContent = text; return e; };
const css = (name) => `var(--${name})`;
const num = (v) => v === null || v === undefined ? "–" : typeof v === "string" ? v : v === 0 ? "0" : Number.isInteger(v) ? v.toLocaleString("en") : Math.abs(v) >= 1e-3 && Math.abs(v) < 1e5 ? String(+v.toPrecision(3)) : v.toExponential(1);
const pct = (v) => v === null || v === undefined ? "–" : typeof v === "string" ? v : v === 0 ? "0" : (100 * v >= 0.01 ? +(100 * v).toPrecision(3) : (100 * v).toExponential(1)) + " %";

const brief = (name) => { const last = String(name).split(";").pop(); return last.length > 34 && last.includes("/") ? "…/" + last.split("/").slice(-2).join("/") : last; };
const briefly = (text) => String(text).replace(/'([^']{35,})'/g, (_, name) => `'${brief(name)}'`);
const ops = new Map((D.placement ? D.placement.rows : []).map((r) => [r.name, r]));
const layers = new Map(D.layers.map((r) => [r.name, r]));
const tasksOf = new Map();
D.tasks.forEach((t) => { if (!tasksOf.has(t.op)) tasksOf.set(t.op, []); tasksOf.get(t.op).push(t); });

function select(name) {
  const row = ops.get(name), layer = layers.get(name), tasks = tasksOf.get(name) || [];
  const box = $("#detail"); box.replaceChildren();
  box.append(el("h3", { title: name }, brief(name)));
  if (row) {
    box.append(el("p", {}, el("span", { class: "tag" + (row.place === "host" ? " host" : "") }, row.place), ` ${row.op} `, el("span", { class: "soft" }, row.evidence)));
    box.append(el("p", {}, briefly(row.reason)));
    if (row.advice) box.append(el("p", {}, el("b", {}, "To bring it on: "), row.advice));
  }
  const list = el("dl");
  const add = (k, v) => v !== undefined && v !== null && list.append(el("dt", {}, k), el("dd", {}, v));
  if (row) { add("shape", row.shape.join(" × ")); if (row.macs) add("MACs", num(row.macs)); }
  if (layer) {
    add("error", pct(layer.error)); add("made here", pct(layer.made)); if (layer.nonfinite) add("infinities", num(layer.nonfinite));
    add("range", `${num(layer.low)} … ${num(layer.high)}`);
    if (layer.headroom_bits !== null) add("headroom", `${num(layer.headroom_bits)} bits (worst case ${num(layer.worst_bits)})`);
    if (layer.dropped !== null) add("dropped", pct(layer.dropped) + " of the products");
    if (layer.table_ends !== null) add("table ends", pct(layer.table_ends) + " of the inputs");
    if (layer.scale_bits) add("scale by", `2^${layer.scale_bits}`);
  }
  tasks.slice(0, 8).forEach((t) => add(`task ${t.segment}.${t.index}`, `${t.unit} ${t.operation}; ${t.shapes}`));
  if (tasks.length > 8) add("…", `${tasks.length - 8} more tasks`);
  box.append(list);
  document.querySelectorAll(".flow li.on").forEach((e) => e.classList.remove("on"));
  const item = document.querySelector(`.flow li[data-name="${CSS.escape(name)}"]`);
  if (item) { item.classList.add("on"); const f = $(".flow"); const y = item.offsetTop; if (y < f.scrollTop || y > f.scrollTop + f.clientHeight - 40) f.scrollTop = y - 120; }
}

function flow() {
  const G = D.graph, lanes = 1 + Math.max(0, ...G.map((n) => n.lane)), H = 26, X = 14;
  const L = Math.max(4, Math.min(16, (innerWidth < 760 ? 72 : 140) / lanes)), width = X + lanes * L + 6;
  const svg = sv("svg", { width, height: G.length * H }), list = el("ol");
  const at = (i) => [X + G[i].lane * L, i * H + H / 2];
  G.forEach((n, i) => {
    for (const s of n.sources) {
      const [x1, y1] = at(s), [x2, y2] = at(i), bend = y2 - H * 0.9;
      const d = x1 === x2 ? `M${x1} ${y1}V${y2}` : `M${x1} ${y1}V${bend}C${x1} ${y2 - 4} ${x2} ${bend + 4} ${x2} ${y2}`;
      svg.append(sv("path", { d, fill: "none", stroke: css("edge"), "stroke-width": 2 }));
    }
  });
  G.forEach((n, i) => {
    const [x, y] = at(i), row = ops.get(n.name), host = row && row.place === "host", isIn = n.op === "input";
    svg.append(sv("circle", { cx: x, cy: y, r: Math.min(isIn ? 4 : 5, Math.max(3, L * 0.45)), fill: isIn ? css("card") : host ? css("host") : css("engine"), stroke: isIn ? css("soft") : css("card"), "stroke-width": 2 }));
    const item = el("li", { "data-name": n.name, class: host ? "host" : "", style: `padding-left:${width + 4}px`, tabindex: 0 }, el("i", {}, n.op), el("span", { title: n.name }, brief(n.name)));
    item.onclick = () => select(n.name); item.onkeydown = (e) => { if (e.key === "Enter") select(n.name); };
    list.append(item);
  });
  const inner = el("div", { class: "inner" }); inner.append(svg, list); $("#flow").append(inner);
  const first = G.find((n) => ops.has(n.name) && ops.get(n.name).place === "host") || G.find((n) => n.op !== "input") || G[0];
  if (first) { select(first.name); $(".flow").scrollTop = 0; }
}

const COLUMNS = {
  ops: [["op", "name", null, "b"], ["place", "place"], ["type", "op"], ["evidence", "evidence"], ["MACs", "macs", num], ["error", "error", pct], ["reason", "reason", null, "w"]],
  tasks: [["task", "id", null, "n"], ["unit", "unit"], ["operation", "operation"], ["shapes", "shapes"], ["op", "op", null, "b"], ["rule", "rule"], ["arithmetic", "evidence"], ["dropped", "dropped", num], ["overflow", "overflow", num], ["table ends", "ends", num]],
  layers: [["layer", "name", null, "b"], ["ops", "op"], ["error", "error", pct], ["made here", "made", pct], ["infinities", "nonfinite", num], ["largest", "largest", num], ["headroom, bits", "headroom_bits", num], ["worst case, bits", "worst_bits", num], ["dropped", "dropped", pct], ["table ends", "table_ends", pct], ["scale, bits", "scale_bits", num]],
};
const ROWS = {
  ops: () => [...ops.values()].map((r) => ({ ...r, error: layers.has(r.name) ? layers.get(r.name).error : null, pick: r.name })),
  tasks: () => D.tasks.map((t) => ({ ...t, id: `${t.segment}.${String(t.index).padStart(4, "0")}`, dropped: t.counters["products dropped"] ?? null, overflow: t.counters["sums overflowed"] ?? null, ends: t.counters["table ends hit"] ?? null, place: "engine", pick: t.op })),
  layers: () => D.layers.map((r) => ({ ...r, place: "engine", pick: r.name })),
};
const MOST = 500; // rows at first: a browser takes seconds for ten thousand
const state = { kind: "ops", sort: null, down: false, most: MOST };
function table() {
  const columns = COLUMNS[state.kind], words = $("#filter").value.toLowerCase().split(/\s+/).filter(Boolean), place = $("#place").value;
  let rows = ROWS[state.kind]();
  const all = rows.length;
  rows = rows.filter((r) => (!place || r.place === place) && words.every((w) => columns.some(([, k]) => String(r[k] ?? "").toLowerCase().includes(w))));
  if (state.sort) { const k = state.sort; rows.sort((a, b) => { const [x, y] = [a[k], b[k]]; if (x == null) return 1; if (y == null) return -1; return (typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true })) * (state.down ? -1 : 1); }); }
  const head = el("tr"), body = el("tbody");
  columns.forEach(([label, key, form, kind]) => { const th = el("th", { class: form || kind === "n" ? "n" : "", scope: "col" }, label); if (state.sort === key) th.setAttribute("aria-sort", state.down ? "descending" : "ascending"); th.onclick = () => { state.down = state.sort === key ? !state.down : Boolean(form); state.sort = key; table(); }; head.append(th); });
  const shown = rows.slice(0, state.most);
  shown.forEach((r) => { const tr = el("tr"); columns.forEach(([, key, form, kind]) => { const v = form ? form(r[key]) : r[key] ?? "–"; const td = el("td", { title: kind === "b" ? String(v) : "", class: (form || kind === "n" ? "n " : "") + (kind === "w" ? "w" : "") }); td.append(key === "place" ? el("span", { class: "tag" + (v === "host" ? " host" : "") }, v) : kind === "b" ? brief(v) : kind === "w" ? briefly(v) : String(v)); tr.append(td); }); tr.onclick = () => { if (r.pick) { select(r.pick); $("#network").scrollIntoView(); } }; body.append(tr); });
  if (shown.length < rows.length) { const more = el("button", {}, `${Math.min(10 * MOST, rows.length - shown.length)} more rows`); more.onclick = () => { state.most += 10 * MOST; table(); }; const td = el("td", { colspan: columns.length }); td.append(more); const tr = el("tr"); tr.append(td); body.append(tr); }
  $("#table").replaceChildren(el("thead", {}, head), body);
  $("#count").textContent = rows.length === all ? `${all} rows` : `${rows.length} of ${all} rows`;
}

function frame(box, W, Hh, m) { const svg = sv("svg", { viewBox: `0 0 ${W} ${Hh}`, role: "img" }); box.append(svg); return svg; }
function errors() {
  const box = $("#errors"); if (!box || !D.layers.length) return;
  const W = 1060, Hh = 260, m = { l: 52, r: 10, t: 12, b: 26 }, svg = frame(box, W, Hh);
  const lo = 1e-6, hi = Math.max(1e-1, ...D.layers.map((r) => r.error || 0)), y = (v) => m.t + (Hh - m.t - m.b) * (1 - Math.log(Math.max(v, lo) / lo) / Math.log(hi / lo));
  const step = (W - m.l - m.r) / D.layers.length;
  for (let p = -6; 10 ** p <= hi * 1.001; p++) { svg.append(sv("line", { x1: m.l, x2: W - m.r, y1: y(10 ** p), y2: y(10 ** p), class: "grid" }), sv("text", { x: m.l - 8, y: y(10 ** p) + 4, "text-anchor": "end" }, 100 * 10 ** p >= 0.01 ? `${+(100 * 10 ** p).toPrecision(2)} %` : `10^${p}`)); }
  D.layers.forEach((r, i) => { const x = m.l + i * step, bar = sv("rect", { x: x + step * 0.1, y: y(r.made || 0), width: Math.max(1, step * 0.8), height: Math.max(0, Hh - m.b - y(r.made || 0)), fill: css("stream") }); bar.append(sv("title", {}, `${r.name}: made ${pct(r.made)}, arrived ${pct(r.error)}`)); bar.style.cursor = "pointer"; bar.onclick = () => { select(r.name); $("#network").scrollIntoView(); }; svg.append(bar); });
  const known = D.layers.map((r, i) => [r.error, i]).filter(([v]) => v !== null);
  const d = known.map(([v, i], n) => `${n ? "L" : "M"}${(m.l + (i + 0.5) * step).toFixed(1)} ${y(v).toFixed(1)}`).join("");
  svg.append(sv("path", { d, fill: "none", stroke: css("engine"), "stroke-width": 2 }));
  D.layers.forEach((r, i) => { if (r.nonfinite) svg.append(sv("circle", { cx: m.l + (i + 0.5) * step, cy: m.t + 4, r: 4, fill: css("host") })); });
  svg.append(sv("text", { x: (W + m.l) / 2, y: Hh - 4, "text-anchor": "middle" }, `${D.layers.length} layers, in order`));
}
function memory() {
  const box = $("#memory"); if (!box || !D.l2.length) return;
  const W = 1060, Hh = 300, m = { l: 60, r: 10, t: 10, b: 26 }, svg = frame(box, W, Hh), top = Math.max(...D.l2.map((c) => c.room)), y = (v) => m.t + (Hh - m.t - m.b) * (1 - v / top), step = (W - m.l - m.r) / D.tasks.length;
  for (let k = 0; k <= top; k += top / 4) svg.append(sv("line", { x1: m.l, x2: W - m.r, y1: y(k), y2: y(k), class: "grid" }), sv("text", { x: m.l - 8, y: y(k) + 4, "text-anchor": "end" }, `${k / 1024} KiB`));
  D.l2.forEach((c) => [...c.stays].sort((a, b) => a.kept - b.kept).forEach((s) => { const t = D.tasks[c.task + s.first], n = s.last + 1 - s.first, r = sv("rect", { x: m.l + (c.task + s.first) * step, width: Math.max(0.8, step * (n - 0.08)), y: y(s.stop), height: Math.max(0.8, y(s.start) - y(s.stop)), fill: css(s.kept ? "engine" : "stream"), stroke: css("card"), "stroke-width": s.kept ? 0.5 : 0 }); r.append(sv("title", {}, `task ${t.segment}.${t.index} ${t.operation}${n > 1 ? ` to ${t.segment}.${s.last}` : ""}: 0x${s.start.toString(16)} to 0x${s.stop.toString(16)}, ${s.kept ? "stays" : "streams through"}`)); r.style.cursor = "pointer"; r.onclick = () => { if (t.op) { select(t.op); $("#network").scrollIntoView(); } }; svg.append(r); }));
  svg.append(sv("text", { x: (W + m.l) / 2, y: Hh - 4, "text-anchor": "middle" }, `${D.tasks.length} tasks, in order`));
}
function estimate() {
  const box = $("#estimate"); if (!box || !D.estimate) return;
  const parts = D.estimate.parts, beside = [["launches", parts.launch_us], ["host", parts.host_us], ["copies", parts.copies_us]].filter(([, us]) => us).map(([name, us]) => ({ name, us, bottleneck: "overhead" }));
  const rows = [...D.estimate.ops, ...beside].sort((a, b) => b.us - a.us).slice(0, 12), most = rows.length ? rows[0].us : 1, color = { compute: css("engine"), weights: css("accent"), activations: css("host"), overhead: css("soft") };
  rows.forEach((r) => { const i = el("i", { style: `width:${Math.max(1, 100 * r.us / most)}%;background:${color[r.bottleneck] || css("engine")}` }); const name = el("span", { title: r.name }, brief(r.name)); box.append(name, i, el("em", {}, `${num(r.us)} µs, ${r.bottleneck}`)); });
}
flow(); errors(); memory(); estimate();
document.querySelectorAll(".tabs button").forEach((b) => b.onclick = () => { document.querySelectorAll(".tabs button").forEach((o) => o.setAttribute("aria-selected", o === b)); state.kind = b.dataset.kind; state.sort = null; state.most = MOST; table(); });
$("#filter").oninput = table; $("#place").onchange = table; table();
