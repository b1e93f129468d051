// Rows: the items that the filters show, one row each. Bundles and collapsed times are between the
// items.

const GAP_NS = 100e6;         // more time without a record is collapsed
const VIRTUAL_GAP_NS = 1e6;   // if the clock jumps in it

// Kinds that end the bundles of packets at their host.
const ENDS_PACKETS = new Set(["cm", "state", "error", "fault", "barrier"]);

class Rows {
  constructor(model) {
    this.model = model;
    this.shown = new Set(KINDS.map(([id]) => id).filter(id => !HIDDEN_AT_FIRST.has(id)));
    this.object = "";
    this.unfolded = new Set();
    this.isAllUnfolded = false;
    this.texts = null;
  }

  isBundled(item) {
    return item.kind === "data" || (item.kind === "call" && !item.bad && !item.rule &&
      (DATA_CALLS.has(item.title) || item.title.startsWith("wr_"))) ||
      (item.kind === "completion" && !item.bad && !item.rule);
  }
  bundleKey(item) { return item.kind === "data" ? "d " + item.pair : "c " + item.lane.key; }

  // Returns all texts of an item, for the search.
  textOf(id) {
    if (!this.texts) this.texts = new Array(this.model.items.length);
    if (this.texts[id] === undefined) {
      const item = this.model.items[id];
      this.texts[id] = [item.lane.label, item.kind, this.titleOf(item), item.text, JSON.stringify(item.record),
                         item.lost ? "lost, not received" : "", item.to ? item.to.sub : ""].join(" ");
    }
    return this.texts[id];
  }

  titleOf(item) { return item.end === "receive" && !item.from ? item.title + " received" : item.title; }

  isAbout(item) {
    if (!this.object) return true;
    if (item.record.object === this.object) return true;
    const text = JSON.stringify(item.record);
    return text.includes('"' + this.object + '"') || text.includes('"' + this.object + ".");
  }

  build() {
    const visible = this.model.items.filter(item => this.shown.has(item.kind) && this.isAbout(item));
    this.bundleOf = this.findBundles(visible);
    this.rows = [];
    this.rowOf = new Map();   // item id -> row
    this.arrows = [];
    const lanes = new Set();
    let before = null;
    for (const item of visible) {
      lanes.add(item.lane);
      for (const lane of [item.to, item.from]) if (lane) lanes.add(lane);
      const bundle = this.bundleOf.get(item.id);
      const isFirst = bundle && bundle.items[0] === item;
      if (bundle && !isFirst && !this.isUnfolded(bundle)) {
        this.rowOf.set(item.id, bundle.row);
        before = Math.max(before, item.t);
        continue;
      }
      this.addGap(before, item.t);
      before = Math.max(before, item.t);
      if (isFirst) {
        bundle.row = this.rows.length;
        this.rows.push({type: "bundle", t: item.t, item, bundle});
        if (!this.isUnfolded(bundle)) {
          this.rowOf.set(item.id, bundle.row);
          continue;
        }
      }
      this.addItem(item);
    }
    this.lanes = this.model.order.filter(lane => lanes.has(lane));
    this.lanes.forEach((lane, index) => { lane.index = index; });
    this.hidden = this.model.items.length - visible.length;
    this.longest = this.arrows.reduce((most, each) => Math.max(most, each.to - each.from), 0);
  }

  addItem(item) {
    const last = this.rows[this.rows.length - 1];
    // A message whose receive record follows at once needs only one row.
    if (item.end === "receive" && item.mate && last && last.item === item.mate) {
      last.arrow.to = last.arrow.from;
      last.isWhole = true;
      this.rowOf.set(item.id, this.rows.length - 1);
      return;
    }
    const row = {type: "item", t: item.t, item};
    this.rowOf.set(item.id, this.rows.length);
    const draw = (a, b) => {
      row.arrow = {from: this.rows.length, to: this.rows.length, item, a, b};
      this.arrows.push(row.arrow);
    };
    // The message of a fault ends at the fault, as it ends at its receive record.
    if (item.end !== "send" && item.mate && this.rowOf.has(item.mate.id)) {
      const sent = this.rows[this.rowOf.get(item.mate.id)];
      if (sent.arrow) sent.arrow.to = this.rows.length;
    } else if (item.end === "send" && item.mate) {
      draw(item.lane, item.mate.lane);
    } else if (item.from) {
      draw(item.from, item.lane);
    } else if (item.to || item.isOpen) {
      draw(item.lane, item.to);
    }
    this.rows.push(row);
  }

  // Returns the gap between two records, or null if their distance is too short for a gap.
  gapBetween(before, t) {
    const took = t - before;
    if (before === null || took < VIRTUAL_GAP_NS) return null;
    const jumped = this.model.jumpedBetween(before, t);
    return took >= GAP_NS || jumped >= VIRTUAL_GAP_NS ? {type: "gap", t: before, took, jumped} : null;
  }
  addGap(before, t) {
    const gap = this.gapBetween(before, t);
    if (gap) this.rows.push(gap);
  }

  // Returns the text of a collapsed time.
  describeGap({took, jumped}) {
    if (jumped < VIRTUAL_GAP_NS) return "nothing for " + showTook(took);
    const waited = took - jumped >= GAP_NS ? ", nothing for " + showTook(took - jumped) : "";
    return "clock jumps by " + showTook(jumped) + waited;
  }

  isUnfolded(bundle) { return this.isAllUnfolded || this.unfolded.has(bundle.items[0].id); }

  findBundles(visible) {
    const open = new Map(), all = new Map();
    this.bundles = [];
    let before = null;
    for (const item of visible) {
      if (this.gapBetween(before, item.t)) open.clear();
      before = Math.max(before, item.t);
      if (!this.isBundled(item)) {
        open.delete("c " + item.lane.key);
        if (!ENDS_PACKETS.has(item.kind)) continue;
        for (const [key, bundle] of open) {
          const first = bundle.items[0];
          if (first.kind === "data" && (first.lane === item.lane || first.to === item.lane)) open.delete(key);
        }
        continue;
      }
      const key = this.bundleKey(item);
      let bundle = open.get(key);
      if (!bundle) {
        bundle = {items: [], row: 0};
        open.set(key, bundle);
      }
      bundle.items.push(item);
      if (bundle.items.length !== 2) {
        if (bundle.items.length > 2) all.set(item.id, bundle);
        continue;
      }
      this.bundles.push(bundle);
      for (const each of bundle.items) all.set(each.id, bundle);
    }
    return all;
  }

  // Returns the text of a folded bundle: "24 packets  1.2 MB  SEND ×12".
  describe(bundle) {
    if (bundle.text) return bundle.text;
    const counts = new Map();
    let bytes = 0, lost = 0;
    for (const item of bundle.items) {
      const name = item.kind === "completion" ? "completion" :
        item.kind === "data" ? item.title.replace(/ (First|Middle|Last|Only)\b.*/i, "") : item.title;
      counts.set(name, (counts.get(name) || 0) + 1);
      bytes += item.kind === "data" ? item.record.bytes || 0 : 0;
      if (item.lost) lost++;
    }
    bundle.lost = lost;
    bundle.isTwoWay = bundle.items.some(item => item.lane !== bundle.items[0].lane);
    const took = bundle.items[bundle.items.length - 1].t - bundle.items[0].t;
    const parts = [...counts].sort((a, b) => b[1] - a[1]).map(([name, count]) => name + " ×" + count);
    const isData = bundle.items[0].kind === "data";
    bundle.title = bundle.items.length + (isData ? " packets" : " data calls");
    bundle.text = [isData ? showSize(bytes) : "", showTook(took), lost ? lost + " lost" : "", parts.join(", ")]
      .filter(Boolean).join("  ");
    return bundle.text;
  }

  // Returns the ids of the items with a text. A text without capital letters matches any case.
  find(words) {
    const sought = words.trim(), isExact = sought !== sought.toLowerCase();
    if (!sought) return [];
    const found = [];
    for (const item of this.model.items) {
      if (!this.shown.has(item.kind) || !this.isAbout(item)) continue;
      const text = this.textOf(item.id);
      if ((isExact ? text : text.toLowerCase()).includes(sought)) found.push(item.id);
    }
    return found;
  }
}

function showTook(ns) {
  for (const [unit, name] of [[1e9, "s"], [1e6, "ms"], [1e3, "µs"]]) {
    if (ns >= unit * 0.9995) return Number((ns / unit).toPrecision(3)) + " " + name;
  }
  return ns + " ns";
}
function showSize(bytes) {
  for (const [unit, name] of [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]]) {
    if (bytes >= unit) return Number((bytes / unit).toPrecision(3)) + " " + name;
  }
  return bytes + " B";
}
// Returns seconds with microseconds: "6.149 103".
function showTime(ns) {
  const text = (ns / 1e9).toFixed(6);
  return text.slice(0, -3) + "\u2009" + text.slice(-3);
}
