// The operator's page. All text is set by textContent, because names come from others.
"use strict";

// Rows of the fleet at once; the search finds the others.
const MAX_ROWS = 50;
const SVG = "http://www.w3.org/2000/svg";

const at = (id) => document.getElementById(id);
let view = null;
let order = { column: null, down: true };
let timer = 0;
// Cells in the charts, and the time of drawing: the day changes slowly.
let drawnCells = "";
let drawnAt = 0;
const REDRAW_MS = 60000;

function scaled(value, units, step) {
  let unit = 0;
  while (value >= step && unit < units.length - 1) { value /= step; unit += 1; }
  const digits = value >= 100 || unit === 0 ? 0 : value >= 10 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}
const rate = (bps) => bps === null ? "unknown" : scaled(bps, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"], 1000);
const bytes = (count) => scaled(count, ["B", "kB", "MB", "GB", "TB"], 1000);
const share = (part) => part === null ? "–" : `${(part * 100).toFixed(part < 0.1 ? 2 : 1)} %`;
const count = (number) => number.toLocaleString("en");
function time(us) {
  const s = us / 1e6;
  if (s < 1) return `${Math.round(us / 1e3)} ms`;
  if (s < 100) return `${s.toFixed(1)} s`;
  if (s < 6000) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} days`;
}

function set(node, text, name = "") {
  if (node.textContent !== text) node.textContent = text;
  if (node.className !== name) node.className = name;
}

// Makes `parent` have `length` children, made by `make`.
function children(parent, length, make) {
  while (parent.childElementCount > length) parent.lastElementChild.remove();
  while (parent.childElementCount < length) parent.append(make());
  return parent.children;
}

function make(name, ...inside) {
  const node = document.createElement(name);
  node.append(...inside);
  return node;
}

// Columns: heading, value to sort by, text, and the class of a cell.
function table(node, columns, rows, sorts) {
  if (!node.tHead) {
    const head = make("tr");
    for (const [heading] of columns) {
      const cell = make("th");
      cell.scope = "col";
      if (sorts) {
        const button = make("button", heading);
        button.type = "button";
        button.addEventListener("click", () => sorts(heading));
        cell.append(button);
      } else {
        cell.textContent = heading;
      }
      head.append(cell);
    }
    node.append(make("thead", head), make("tbody"));
  }
  const cell = () => make("td");
  const lines = children(node.tBodies[0], rows.length, () => make("tr", ...columns.map(cell)));
  rows.forEach((row, number) => {
    columns.forEach(([, , text, name], column) => {
      set(lines[number].children[column], text(row), name ? name(row) : "");
    });
  });
}

const FLEET = [
  ["Aircraft", (it) => it.aircraft, (it) => it.aircraft],
  ["State", (it) => it.outage_us, (it) => it.outage_us ? `out ${time(it.outage_us)}` : "up",
    (it) => it.outage_us ? "bad" : "good"],
  ["Rate", (it) => it.rate_bps ?? 0, (it) => rate(it.rate_bps)],
  ["Sent", (it) => it.sent_bps, (it) => rate(it.sent_bps)],
  ["Received", (it) => it.received_bps, (it) => rate(it.received_bps)],
  ["Round trip", (it) => it.round_trip_us, (it) => time(it.round_trip_us)],
  ["Loss", (it) => it.loss ?? -1, (it) => share(it.loss)],
  ["Queue", (it) => it.queue_us, (it) => time(it.queue_us)],
  ["Flows", (it) => it.flows, (it) => count(it.flows)],
];
const CLASSES = [
  ["Class", null, (it) => it.class],
  ["Sent", null, (it) => rate(it.sent_bps)],
  ["Received", null, (it) => rate(it.received_bps)],
  ["Waiting, p95", null, (it) => time(it.delay_p95_us)],
  ["Dropped", null, (it) => count(it.dropped_packets)],
  ["Flows", null, (it) => count(it.flows)],
];
const USERS = [
  ["Passenger", null, (it) => it.aircraft ? `${it.aircraft} ${it.name}` : it.name],
  ["Sent", null, (it) => rate(it.sent_bps)],
  ["Received", null, (it) => rate(it.received_bps)],
  ["In this session", null, (it) => bytes(it.bytes)],
  ["Flows", null, (it) => count(it.flows)],
];
const CACHES = [
  ["Cache", null, (it) => it.name],
  ["Requests", null, (it) => count(it.requests)],
  ["Answered", null, (it) => share(it.hits / it.requests)],
  ["Bytes saved", null, (it) => bytes(it.saved_bytes)],
  ["Round trips saved", null, (it) => count(it.saved_round_trips)],
  ["Time saved", null, (it) => time(it.saved_us)],
];

const upTo = (it, s) => it.exchanges === it.failed ? "–" : s === null ? "over 32 s" : `up to ${s} s`;
const EXPERIENCE = [
  ["Class", null, (it) => it.class],
  ["Rule", null, (it) => it.rule || "none"],
  ["Index", null, (it) => it.index_permille === null ? "–" : (it.index_permille / 1000).toFixed(2)],
  ["First byte, half", null, (it) => upTo(it, it.first_byte_p50_s)],
  ["Complete, 95 %", null, (it) => upTo(it, it.completion_p95_s)],
  ["Exchanges", null, (it) => count(it.exchanges)],
  ["Unanswered", null, (it) => count(it.failed)],
];

function sortFleet(heading) {
  order = { column: heading, down: order.column === heading ? !order.down : heading !== "Aircraft" };
  showFleet();
}

function showFleet() {
  const wanted = at("find").value.toLowerCase();
  let rows = view.fleet.filter((it) => it.aircraft.toLowerCase().includes(wanted));
  const column = FLEET.find(([heading]) => heading === order.column);
  if (column) {
    const value = column[1];
    const sign = order.down ? -1 : 1;
    rows.sort((a, b) => sign * (value(a) < value(b) ? -1 : value(a) > value(b) ? 1 : 0));
  }
  const found = rows.length;
  rows = rows.slice(0, MAX_ROWS);
  table(at("fleet"), FLEET, rows, sortFleet);
  for (const cell of at("fleet").tHead.rows[0].cells) {
    const sorted = cell.textContent === order.column;
    cell.ariaSort = sorted ? (order.down ? "descending" : "ascending") : "none";
  }
  const more = view.all_sessions > view.fleet.length ? ` of the ${count(view.fleet.length)} busiest` : "";
  set(at("shown"), `${count(rows.length)} of ${count(found)} shown${more}; `
    + `${count(view.all_sessions)} here, ${count(view.silent_sessions)} silent`);
}

function figures() {
  // The table may leave aircraft out; the classes are those of all.
  const sum = (of) => view.classes.reduce((all, it) => all + of(it), 0);
  if (view.gateway === "ground") {
    return [
      ["Aircraft here", count(view.all_sessions)],
      ["Silent", count(view.silent_sessions), view.silent_sessions ? "bad" : ""],
      ["Sent", rate(sum((it) => it.sent_bps))],
      ["Received", rate(sum((it) => it.received_bps))],
      ["Flows", count(sum((it) => it.flows))],
    ];
  }
  const it = view.link;
  if (!it) return [["Session", "none", "bad"]];
  return [
    ["State", it.outage_us ? `out for ${time(it.outage_us)}` : "up", it.outage_us ? "bad" : "good"],
    ["May send", `${rate(it.rate_bps)} (${it.source})`],
    ["Ground sends at", rate(it.peer_rate_bps)],
    ["Sent", rate(it.sent_bps)],
    ["Received", rate(it.received_bps)],
    ["Round trip", time(it.round_trip_us)],
    ["Queue on the path", time(it.queue_us)],
    ["Loss", share(it.loss)],
    ["Repair packets", share(it.repairs)],
    ["Sent again", share(it.retransmissions)],
    ["Last packet", `${time(it.silence_us)} ago`],
    ["Outages, all", `${time(it.outages_us)} of ${time(it.age_us)}`],
    ["Largest packet", `${count(it.mtu_bytes)} B`],
    ["Flows", count(it.flows)],
  ];
}

function showFigures() {
  const all = figures();
  const made = children(at("figures"), all.length, () => make("div", make("dt"), make("dd")));
  all.forEach(([name, value, mark], number) => {
    set(made[number].children[0], name);
    set(made[number].children[1], value, mark ?? "");
  });
}

function drawn(name, attributes) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
}

// A figure with up to two lines over the cells of the day.
function chart(title, lines, text) {
  const cells = view.history;
  const last = cells.length ? cells[cells.length - 1].begin_unix_ms : 0;
  const first = last - 86400000;
  const top = Math.max(...lines.map(([, of]) => Math.max(0, ...cells.map(of))));
  const svg = drawn("svg", { viewBox: "0 0 288 100", preserveAspectRatio: "none", role: "img" });
  svg.setAttribute("aria-label", `${title}: at most ${text(top)}`);
  svg.append(drawn("line", { class: "axis", x1: 0, x2: 288, y1: 99, y2: 99 }));
  const caption = make("figcaption", `${title} `);
  lines.forEach(([name, of], number) => {
    const mark = number ? "two" : "one";
    let path = "";
    let before = null;
    for (const cell of cells) {
      const x = (cell.begin_unix_ms - first) / 86400000 * 288;
      const y = 98 - (top > 0 ? of(cell) / top * 94 : 0);
      // A gap: the gateway did not run.
      const joins = before !== null && cell.begin_unix_ms - before <= 2 * view.cell_ms;
      path += joins ? ` L${x.toFixed(1)} ${y.toFixed(1)}` : ` M${x.toFixed(1)} ${y.toFixed(1)} h1`;
      before = cell.begin_unix_ms;
    }
    svg.append(drawn("path", { class: `line ${mark}`, d: path || "M0 0" }));
    const key = make("span", name);
    key.className = `key ${mark}`;
    caption.append(key, " ");
  });
  caption.append(`up to ${text(top)}`);
  return make("figure", caption, svg, make("p", make("span", "24 h ago"), make("span", "now")));
}

function showDay() {
  const cells = `${view.history.length} ${view.history.at(-1)?.begin_unix_ms}`;
  if (cells === drawnCells && Date.now() - drawnAt < REDRAW_MS) return;
  [drawnCells, drawnAt] = [cells, Date.now()];
  const bps = (of) => (it) => it.measured_us ? of(it) * 8e6 / it.measured_us : 0;
  const lost = (it) => it.judged_packets ? it.lost_packets / it.judged_packets : 0;
  const charts = [
    chart("Traffic", [["sent", bps((it) => it.sent_bytes)], ["received", bps((it) => it.received_bytes)]], rate),
    chart("Delay", [["round trip", (it) => it.round_trip_us], ["queue", (it) => it.queue_us]], time),
    chart("Loss", [["packets", lost]], share),
    view.gateway === "ground"
      ? chart("Aircraft", [["here", (it) => it.sessions], ["silent", (it) => it.silent]], count)
      : chart("Outages", [["part of the time", (it) => it.measured_us ? it.out_us / it.measured_us : 0]], share),
  ];
  at("charts").replaceChildren(...charts);
}

function showAlarms() {
  const lines = view.alarms.slice();
  if (view.all_alarms > lines.length) lines.push(`… and ${count(view.all_alarms - lines.length)} more.`);
  const items = children(at("alarms"), Math.max(1, lines.length), () => make("li"));
  if (!lines.length) lines.push("None.");
  lines.forEach((line, number) => set(items[number], line, view.alarms.length ? "bad" : ""));
}

function show() {
  const name = view.gateway === "ground" ? "ground gateway" : "air gateway";
  document.title = `${view.alarms.length ? "⚠ " : ""}Bentpipe ${name}`;
  set(at("gateway"), name);
  showAlarms();
  showFigures();
  showDay();
  at("fleet-section").hidden = view.gateway !== "ground";
  if (view.gateway === "ground") showFleet();
  table(at("classes"), CLASSES, view.classes);
  at("no-users").hidden = view.users !== null;
  if (view.users?.length) table(at("users"), USERS, view.users);
  at("experience-section").hidden = !view.experience.length;
  if (view.experience.length) table(at("experience"), EXPERIENCE, view.experience);
  at("caches-section").hidden = !view.caches.length;
  if (view.caches.length) table(at("caches"), CACHES, view.caches);
}

function showState(failed) {
  const age = view ? Date.now() - view.written_unix_ms : 0;
  const old = view && age > 2 * view.interval_ms + 1000;
  const seen = view && view.written_unix_ms
    ? `release ${view.version}, runs for ${time(view.uptime_us)}, figures of ${new Date(view.written_unix_ms).toLocaleTimeString()}`
    : "no figures yet";
  set(at("state"), failed ? `The gateway does not answer; ${seen}.` : `${seen[0].toUpperCase()}${seen.slice(1)}.`,
    failed || old ? "bad" : "");
}

async function update() {
  clearTimeout(timer);
  let failed = false;
  try {
    const answer = await fetch("/operator.json");
    if (!answer.ok) throw new Error(String(answer.status));
    view = await answer.json();
    show();
  } catch {
    failed = true;
  }
  showState(failed);
  timer = setTimeout(update, Math.max(1000, view?.interval_ms || 1000));
}

at("find").addEventListener("input", () => view && showFleet());
update();
