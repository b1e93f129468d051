// The controls: search, filters, folding, zoom, keys, and the state in the address (#search=REJ).
// <html data-...> has the state for tests and tools.

const root = document.documentElement;
root.dataset.errors = "0";
window.addEventListener("error", () => { root.dataset.errors = String(Number(root.dataset.errors) + 1); });

const $ = id => document.getElementById(id);
const begun = performance.now();
const model = new Model(JSON.parse($("data").textContent));
const rows = new Rows(model);
const chart = new Chart(rows, $("canvas"), $("scroll"), $("spacer"));
let matches = [], match = -1, isDue = false;

function draw() {
  isDue = false;
  chart.draw();
  root.dataset.drawn = chart.drawn;
}
// Draws at once, because changing the size of the canvas clears it.
function lay() {
  chart.layout();
  draw();
}
function drawSoon() {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(draw);
}

// Builds the rows again. The selected record does not change.
function rebuild() {
  const item = chart.chosen >= 0 && rows.rows ? (rows.rows[chart.chosen] || {}).item : null;
  rows.build();
  const row = item ? rows.rowOf.get(item.id) : undefined;
  chart.chosen = row === undefined ? -1 : row;
  chart.layout();
  root.dataset.rows = rows.rows.length;
  root.dataset.arrows = rows.arrows.length;
  root.dataset.bundles = rows.bundles.length;
  root.dataset.unfolded = rows.bundles.filter(bundle => rows.isUnfolded(bundle)).length;
  root.dataset.lanes = rows.lanes.map(lane => lane.label).join("|");
  $("summary").textContent = model.data.files.map(file => file.name.split("/").pop()).join(", ") + "  ·  " +
    model.items.length + " records" + (rows.hidden ? ", " + rows.hidden + " hidden by filters" : "");
  draw();
}

// ---- selection

function describe(row) {
  if (row.type === "gap") return rows.describeGap(row);
  if (row.type === "bundle") {
    const text = rows.describe(row.bundle);   // sets the title, too
    return row.bundle.title + " " + text;
  }
  const {item} = row;
  return [item.lane.label, item.title, item.text, item.lost ? "not received" : ""].filter(Boolean).join(" ");
}

function addField(name, value) {
  const line = $("fields").insertRow();
  line.insertCell().textContent = name;
  line.insertCell().textContent = value;
}

function choose(number) {
  chart.chosen = number;
  const row = rows.rows[number];
  $("detail").hidden = !row || row.type === "gap";
  if (row) {
    $("live").textContent = root.dataset.selected = describe(row);
    $("fields").replaceChildren();
    if (row.item) fill(row);
    chart.layout();
    chart.show(number);
  }
  lay();
}

// The time of a record in its file. JavaScript's numbers have too few digits for this time.
function absoluteTime(t) {
  const ns = (BigInt(model.data.origin_ns) + BigInt(Math.round(t))).toString().padStart(10, "0");
  return ns.slice(0, -9) + "." + ns.slice(-9);
}

function fill(row) {
  const {item} = row;
  $("what").textContent = row.type === "bundle" ? row.bundle.title : item.title;
  if (row.type === "bundle") {
    addField("contents", rows.describe(row.bundle));
    addField("from", showTime(row.bundle.items[0].t) + " s");
    addField("to", showTime(row.bundle.items[row.bundle.items.length - 1].t) + " s");
    return;
  }
  addField("at", showTime(item.t) + " s");
  if (item.mate) addField(item.end === "send" ? "received at" : "sent at", showTime(item.mate.t) + " s");
  if (item.lost) addField("received", item.fault ? "no, dropped by " + item.fault.title : "no");
  else if (item.arrived !== undefined && !item.mate) addField("received at", showTime(item.arrived) + " s");
  if (item.privateData) addField("private data", showBytes(item.privateData));
  for (const [key, value] of Object.entries(item.record)) {
    if (key === "time" || value === "" || (value && typeof value === "object" && Object.keys(value).length === 0)) continue;
    addField(key, value && typeof value === "object" ? JSON.stringify(value, null, 1) : showValue(value));
  }
  const file = model.data.files[item.file];
  addField("time", absoluteTime(item.t - item.shift));
  addField("from", file.name + (file.kind === "capture" ? " packet " : ":") + item.line);
}

function toggle(number) {
  const row = rows.rows[number];
  if (!row || row.type === "gap") return;
  const bundle = row.type === "bundle" ? row.bundle : rows.bundleOf.get(row.item.id);
  if (bundle) {
    const id = bundle.items[0].id;
    if (rows.isAllUnfolded) {
      rows.isAllUnfolded = false;
      for (const each of rows.bundles) rows.unfolded.add(each.items[0].id);
    }
    if (!rows.unfolded.delete(id)) rows.unfolded.add(id);
    rebuild();
    choose(rows.bundleOf.get(bundle.items[0].id).row);
  } else if (row.item.mate && rows.rowOf.has(row.item.mate.id)) {
    choose(rows.rowOf.get(row.item.mate.id));
  }
}

function unfoldAll(isUnfolded) {
  rows.isAllUnfolded = isUnfolded;
  rows.unfolded.clear();
  rebuild();
}

// ---- search and filters

function search(words) {
  matches = rows.find(words);
  match = -1;
  chart.hits = new Set(matches);
  root.dataset.matches = matches.length;
  $("found").textContent = words.trim() ? matches.length + " found" : "";
  remember("search", words);
  if (matches.length > 0) step(1); else drawSoon();
}

function step(by) {
  if (matches.length === 0) return;
  match = (match + by + matches.length) % matches.length;
  const id = matches[match], bundle = rows.bundleOf.get(id);
  if (bundle && !rows.isUnfolded(bundle)) {
    rows.unfolded.add(bundle.items[0].id);
    rebuild();
  }
  $("found").textContent = match + 1 + " of " + matches.length;
  choose(rows.rowOf.get(id));
}

function setKinds() {
  for (const button of $("kinds").children) {
    button.setAttribute("aria-pressed", String(rows.shown.has(button.dataset.kind)));
  }
  rebuild();
  search($("search").value);
}

function makeFilters() {
  for (const [id, name] of KINDS) {
    const count = model.items.filter(item => item.kind === id).length;
    if (count === 0) continue;
    const button = document.createElement("button");
    button.dataset.kind = id;
    button.style.setProperty("--kind", "var(--" + id + ")");
    button.textContent = name + " " + count;
    button.addEventListener("click", () => {
      if (!rows.shown.delete(id)) rows.shown.add(id);
      remember("kinds", [...rows.shown].join(","));
      setKinds();
    });
    $("kinds").append(button);
  }
  const objects = new Set(model.items.map(item => item.record.object).filter(Boolean));
  for (const object of [...objects].slice(0, 500)) {
    const option = document.createElement("option");
    option.value = object;
    $("objects").append(option);
  }
}

function setObject(name) {
  rows.object = name.trim();
  remember("object", rows.object);
  setKinds();
}

// ---- view

function setZoom(zoom) {
  const middle = (chart.scroll.scrollTop + chart.height / 2) / chart.rowHeight;
  chart.zoom = Math.max(0, Math.min(ROW_HEIGHTS.length - 1, zoom));
  chart.layout();
  chart.scroll.scrollTop = middle * chart.rowHeight - chart.height / 2;
  remember("zoom", String(chart.zoom));
  root.dataset.zoom = chart.zoom;
  draw();
}

const darkness = matchMedia("(prefers-color-scheme: dark)");
function setTheme(name) {
  root.dataset.theme = name === "light" || name === "dark" ? name : darkness.matches ? "dark" : "light";
  chart.readColours();
  drawSoon();
}

function press(button, id) {
  $(id).hidden = !$(id).hidden;
  $(button).setAttribute("aria-expanded", String(!$(id).hidden));
  lay();
}

// ---- the state in the address

const state = new URLSearchParams(location.hash.slice(1));
function remember(name, value) {
  if (value) state.set(name, value); else state.delete(name);
  try {
    history.replaceState(null, "", "#" + state);
  } catch {
    // A page without an origin of its own has no history. The state of such a page is in the page
    // only.
  }
}

function restore() {
  setTheme(state.get("theme"));
  if (state.has("kinds")) rows.shown = new Set(state.get("kinds").split(","));
  rows.object = state.get("object") || "";
  $("object").value = rows.object;
  rows.isAllUnfolded = state.get("unfold") === "all";
  if (state.has("zoom")) chart.zoom = Math.max(0, Math.min(ROW_HEIGHTS.length - 1, Number(state.get("zoom")) || 0));
  $("search").value = state.get("search") || "";
  setKinds();
  if (state.get("filter") === "open") press("filters", "filter");
  if (state.has("select")) choose(Math.min(rows.rows.length - 1, Math.max(0, Number(state.get("select")) || 0)));
}

function showNotes() {
  const notes = [];
  const {left_out, limit, left_out_from_ns, files} = model.data;
  if (left_out) {
    notes.push("The page lacks the last " + left_out + " records, from " + showTime(left_out_from_ns) + " s on: a page has at most " +
               limit + " records. Use --from and --to for others.");
  }
  for (const file of files) {
    if (file.cut) notes.push("The last line of " + file.name + " was cut, and is left out.");
  }
  const owns = files.filter(file => file.own_clock);
  if (owns.length > 0 && owns.length < files.length) {
    notes.push("The clock of some hosts is not the machine's. Their records begin with the first record of the others.");
  }
  $("notes").textContent = notes.join(" ");
  $("notes").hidden = notes.length === 0;
}

// Measures the time of a drawing step (`#measure=N`). Reading a pixel makes the browser finish the
// step.
function measure(steps) {
  const most = chart.scroll.scrollHeight - chart.height;
  const times = [];
  for (let i = 0; i < steps; i++) {
    chart.scroll.scrollTop = most * (i + 0.5) / steps;
    const start = performance.now();
    chart.draw();
    chart.context.getImageData(0, 0, 1, 1);
    times.push(performance.now() - start);
  }
  times.sort((a, b) => a - b);
  root.dataset.scrollMedianMs = times[Math.floor(steps / 2)].toFixed(2);
  root.dataset.scrollMostMs = times[steps - 1].toFixed(2);
  chart.scroll.scrollTop = 0;
  draw();
}

// Finds the colours on the canvas (`#check=1`), so that a test can check what the canvas shows.
// `data-painted` has the kinds whose colour is there. `data-gaps` has the first collapsed times,
// `data-shown` the first rows with the ends of their arrows.
function checkCanvas() {
  draw();
  const image = chart.context.getImageData(0, 0, chart.canvas.width, chart.canvas.height);
  const colours = new Set(new Uint32Array(image.data.buffer));
  // The bytes of a pixel are red, green, blue, alpha.
  const isPainted = colour => {
    const digits = colour.slice(1).match(/../g).map(each => parseInt(each, 16));
    return colours.has(new Uint32Array(Uint8Array.from([...digits, 255]).buffer)[0]);
  };
  root.dataset.colours = colours.size;
  root.dataset.painted = KINDS.map(([id]) => id).filter(id => isPainted(chart.colours[id])).join("|");
  root.dataset.gaps = rows.rows.filter(row => row.type === "gap").slice(0, 20)
    .map(gap => rows.describeGap(gap)).join("|");
  const ends = ({arrow}) => arrow ? arrow.a.label + " to " + (arrow.b ? arrow.b.label : "?") + ": " : "";
  root.dataset.shown = rows.rows.slice(0, 100).map(row => ends(row) + describe(row)).join("|").replace(/[<>]/g, "");
}

const KEYS = {
  ArrowDown: () => move(1), ArrowUp: () => move(-1),
  PageDown: () => move(chart.pageRows), PageUp: () => move(-chart.pageRows),
  Home: () => choose(0), End: () => choose(rows.rows.length - 1),
  Enter: () => toggle(chart.chosen), ArrowRight: () => toggle(chart.chosen), ArrowLeft: () => toggle(chart.chosen),
  "/": () => $("search").focus(), n: () => step(1), N: () => step(-1),
  "[": () => unfoldAll(false), "]": () => unfoldAll(true),
  "+": () => setZoom(chart.zoom + 1), "=": () => setZoom(chart.zoom + 1), "-": () => setZoom(chart.zoom - 1),
  f: () => press("filters", "filter"), "?": () => press("help", "keys"), t: () => switchTheme(),
  Escape: () => { $("keys").hidden = true; choose(-1); },
};
function move(by) { choose(Math.max(0, Math.min(rows.rows.length - 1, chart.chosen + by))); }
function switchTheme() {
  const theme = root.dataset.theme === "dark" ? "light" : "dark";
  remember("theme", theme);
  setTheme(theme);
}

function listen() {
  $("scroll").addEventListener("scroll", drawSoon, {passive: true});
  // Not at once: a new layout within the observer's call would be an error of the page.
  new ResizeObserver(() => requestAnimationFrame(lay)).observe($("scroll"));
  $("scroll").addEventListener("click", event => {
    const row = chart.rowAt(event.clientY - $("scroll").getBoundingClientRect().top);
    if (row < 0) return;
    if (rows.rows[row].type === "bundle" || row === chart.chosen) toggle(row); else choose(row);
  });
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target instanceof HTMLInputElement) {
      if (event.key === "Escape") $("scroll").focus();
      if (event.key === "Enter" && event.target === $("search")) step(event.shiftKey ? -1 : 1);
      return;
    }
    if (event.key === "Enter" && event.target instanceof HTMLButtonElement) return;
    const act = KEYS[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  $("search").addEventListener("input", () => search($("search").value));
  $("object").addEventListener("change", () => setObject($("object").value));
  darkness.addEventListener("change", () => setTheme(state.get("theme")));
  for (const [id, act] of Object.entries({
    previous: () => step(-1), next: () => step(1), filters: KEYS.f, fold: KEYS["["], unfold: KEYS["]"],
    smaller: KEYS["-"], larger: KEYS["+"], theme: switchTheme, help: KEYS["?"], close: KEYS.Escape})) {
    $(id).addEventListener("click", act);
  }
}

showNotes();
makeFilters();
listen();
restore();
if (state.has("measure")) chart.context.getImageData(0, 0, 1, 1);
root.dataset.drawMs = (performance.now() - begun).toFixed(1);
root.dataset.records = model.items.length;
if (state.has("measure")) measure(Math.max(1, Math.min(1000, Number(state.get("measure")) || 100)));
if (state.has("check")) checkCanvas();
root.dataset.ready = "1";
