// Draws the visible rows on a canvas of the size of the window. The cost of a frame does not depend
// on the number of records.

const ROW_HEIGHTS = [6, 12, 20, 26, 34];
const HEAD_HEIGHT = 46;
const LABEL_HEIGHT = 18;   // smaller rows have no text
const FAR_ROWS = 400;      // longer arrows are in a list of their own

class Chart {
  constructor(rows, canvas, scroll, spacer) {
    Object.assign(this, {rows, canvas, scroll, spacer});
    this.context = canvas.getContext("2d");
    this.zoom = 3;
    this.chosen = -1;        // row
    this.hits = new Set();   // item ids
    this.cuts = new Map();   // texts cut to a width
    this.readColours();
  }

  get rowHeight() { return ROW_HEIGHTS[this.zoom]; }
  get pageRows() { return Math.max(1, Math.floor((this.height - HEAD_HEIGHT) / this.rowHeight) - 1); }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = name => style.getPropertyValue("--" + name).trim();
    this.colours = {};
    for (const name of ["paper", "raised", "line", "ink", "muted", "accent", "hit", "chosen", "tint",
                        ...KINDS.map(([id]) => id)]) {
      this.colours[name] = colour(name);
    }
    this.family = getComputedStyle(document.body).fontFamily;
  }

  layout() {
    this.width = this.scroll.clientWidth;
    this.height = this.scroll.clientHeight;
    this.ratio = window.devicePixelRatio || 1;
    const isNarrow = this.width < 640;
    this.axis = isNarrow ? 74 : 92;
    const count = Math.max(1, this.rows.lanes.length);
    const least = isNarrow ? 150 : 190;
    this.lane = Math.max(least, Math.floor((this.width - this.axis - 22) / count));
    this.contentWidth = this.axis + 22 + this.lane * count;
    this.spacer.style.width = Math.max(this.contentWidth, 1) + "px";
    this.spacer.style.height = HEAD_HEIGHT + this.rows.rows.length * this.rowHeight + 24 + "px";
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.canvas.style.width = this.width + "px";
    this.canvas.style.height = this.height + "px";
    this.far = this.rows.arrows.filter(arrow => arrow.to - arrow.from > FAR_ROWS);
    this.cuts.clear();
  }

  x(lane) { return this.axis + 22 + lane.index * this.lane - this.left; }
  // The ends of an arrow. An arrow to a host without a lifeline ends beside its own lifeline.
  ends({a, b}) {
    const x = this.x(a);
    return [x, b ? this.x(b) : x + this.lane * 0.8 * (a.index > 0 && a.index === this.rows.lanes.length - 1 ? -1 : 1)];
  }
  y(row) { return HEAD_HEIGHT + row * this.rowHeight - this.top + this.rowHeight / 2; }

  // Returns the text, cut to a width in pixels. Set the font before the call.
  cut(text, width) {
    if (width < 12) return "";
    const key = this.context.font + Math.round(width) + "|" + text;
    let cut = this.cuts.get(key);
    if (cut !== undefined) return cut;
    cut = text.length > 400 ? text.slice(0, 400) : text;
    if (this.context.measureText(cut).width > width) {
      let low = 0, high = cut.length;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.context.measureText(cut.slice(0, middle) + "…").width <= width) low = middle; else high = middle - 1;
      }
      cut = cut.slice(0, low) + "…";
    }
    if (this.cuts.size > 20000) this.cuts.clear();
    this.cuts.set(key, cut);
    return cut;
  }

  draw() {
    const {context: c, colours} = this, rows = this.rows.rows;
    this.top = this.scroll.scrollTop;
    this.left = this.scroll.scrollLeft;
    const first = Math.max(0, Math.floor(this.top / this.rowHeight) - 1);
    const last = Math.min(rows.length - 1, Math.ceil((this.top + this.height - HEAD_HEIGHT) / this.rowHeight));
    c.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    c.fillStyle = colours.paper;
    c.fillRect(0, 0, this.width, this.height);
    for (let row = first; row <= last; row++) this.drawGround(row);
    this.drawLifelines();
    for (let row = first; row <= last; row++) if (rows[row].type === "gap") this.drawGap(row);
    const isNear = arrow => arrow.from <= last && arrow.to >= first;
    for (const arrow of this.far) if (isNear(arrow)) this.drawArrow(arrow);
    for (let row = Math.max(0, first - FAR_ROWS); row <= last; row++) {
      const arrow = rows[row].arrow;
      if (arrow && arrow.to - arrow.from <= FAR_ROWS && isNear(arrow)) this.drawArrow(arrow);
    }
    for (let row = first; row <= last; row++) this.drawRow(row);
    this.drawAxis(first, last);
    this.drawHead();
    this.drawn = Math.max(0, last - first + 1);
  }

  drawGround(row) {
    const {context: c, colours} = this, {item, type, bundle} = this.rows.rows[row];
    let colour = "";
    if (type === "item" && item.rule) colour = colours.tint;
    if (item && (type === "bundle" ? bundle.items.some(each => this.hits.has(each.id))
                                   : this.hits.has(item.id))) colour = colours.hit;
    if (row === this.chosen) colour = colours.chosen;
    if (!colour) return;
    c.fillStyle = colour;
    c.fillRect(0, this.y(row) - this.rowHeight / 2, this.width, this.rowHeight);
    if (row !== this.chosen) return;
    c.fillStyle = colours.accent;
    c.fillRect(0, this.y(row) - this.rowHeight / 2, 3, this.rowHeight);
  }

  drawLifelines() {
    const {context: c, colours} = this;
    for (const lane of this.rows.lanes) {
      const x = Math.round(this.x(lane));
      c.strokeStyle = lane.kind === "host" ? colours.muted : colours.line;
      c.lineWidth = lane.kind === "host" ? 2 : 1.5;
      c.beginPath();
      c.moveTo(x, HEAD_HEIGHT);
      c.lineTo(x, Math.min(this.height, this.y(this.rows.rows.length - 1) + this.rowHeight));
      c.stroke();
    }
  }

  drawGap(row) {
    const {context: c, colours} = this, gap = this.rows.rows[row], y = this.y(row);
    c.fillStyle = colours.paper;
    c.fillRect(this.axis, y - this.rowHeight * 0.36, this.width, this.rowHeight * 0.72);
    c.strokeStyle = colours.line;
    c.lineWidth = 1;
    c.setLineDash([2, 4]);
    for (const side of [-0.36, 0.36]) {
      c.beginPath();
      c.moveTo(this.axis, y + this.rowHeight * side);
      c.lineTo(this.width, y + this.rowHeight * side);
      c.stroke();
    }
    c.setLineDash([]);
    if (this.rowHeight < LABEL_HEIGHT) return;
    c.font = "italic 12px " + this.family;
    c.fillStyle = gap.jumped >= VIRTUAL_GAP_NS ? colours.barrier : colours.muted;
    c.textAlign = "left";
    c.fillText(this.rows.describeGap(gap), this.axis + 34, y + 4);
  }

  drawArrow(arrow) {
    const {context: c, colours} = this, {item} = arrow;
    let [x1, x2] = this.ends(arrow);
    const dip = this.rowHeight >= LABEL_HEIGHT ? this.rowHeight * 0.26 : 0;
    const y1 = this.y(arrow.from) + dip, y2 = this.y(arrow.to) + dip;
    c.strokeStyle = c.fillStyle = item.lost || item.bad ? colours.fault : colours[item.kind];
    c.lineWidth = item.kind === "cm" ? 1.8 : 1.3;
    if (x1 === x2) {   // between two queue pairs of one host
      c.beginPath();
      c.arc(x1, y1, 6, -Math.PI / 2, Math.PI / 2);
      c.stroke();
      return;
    }
    const side = x2 > x1 ? 1 : -1;
    x1 += side * 2;
    x2 -= side * 2;
    if (item.lost) x2 = x1 + (x2 - x1) * 0.72;
    else if (item.isOpen) x2 -= side * 6;
    c.setLineDash(item.lost ? [5, 4] : item.kind === "event" ? [2, 3] : []);
    c.beginPath();
    c.moveTo(x1, y1);
    c.lineTo(x2, y2);
    c.stroke();
    c.setLineDash([]);
    c.beginPath();
    if (item.lost) {
      for (const slope of [1, -1]) {
        c.moveTo(x2 - 5, y2 - 5 * slope);
        c.lineTo(x2 + 5, y2 + 5 * slope);
      }
      c.lineWidth = 2;
      c.stroke();
      return;
    }
    if (item.isOpen) {
      c.arc(x2 + side * 4, y2, 4, 0, 7);
      c.stroke();
      return;
    }
    const angle = Math.atan2(y2 - y1, x2 - x1), size = this.rowHeight >= LABEL_HEIGHT ? 8 : 5;
    c.moveTo(x2, y2);
    c.lineTo(x2 - size * Math.cos(angle - 0.42), y2 - size * Math.sin(angle - 0.42));
    c.lineTo(x2 - size * Math.cos(angle + 0.42), y2 - size * Math.sin(angle + 0.42));
    c.closePath();
    c.fill();
  }

  drawRow(number) {
    const row = this.rows.rows[number];
    if (row.type === "gap") return;
    if (row.type === "bundle") this.drawBundle(row, this.y(number));
    else if (row.arrow) this.drawArrowText(row, this.y(number));
    else this.drawMark(row, this.y(number));
  }

  // Writes a title and a fainter text. Both together are at most `width` pixels wide.
  write(x, y, width, title, text, colour, isCentred) {
    const {context: c, colours} = this;
    if (this.rowHeight < LABEL_HEIGHT) return;
    c.textAlign = "left";
    c.font = "600 12px " + this.family;
    const head = this.cut(title, width), headWidth = c.measureText(head).width;
    c.font = "12px " + this.family;
    const tail = text ? this.cut(text, width - headWidth - 7) : "";
    const all = headWidth + (tail ? 7 + c.measureText(tail).width : 0);
    if (isCentred) x += Math.max(0, (width - all) / 2);
    c.lineJoin = "round";
    c.lineWidth = 4;
    c.strokeStyle = this.ground || colours.paper;
    c.font = "600 12px " + this.family;
    c.strokeText(head, x, y);
    c.fillStyle = colour;
    c.fillText(head, x, y);
    if (!tail) return;
    c.font = "12px " + this.family;
    c.strokeText(tail, x + headWidth + 7, y);
    c.fillStyle = colours.muted;
    c.fillText(tail, x + headWidth + 7, y);
  }

  drawArrowText(row, y) {
    const {item, arrow} = row, {colours} = this;
    const [x1, x2] = this.ends(arrow);
    const end = item.mate ? item.mate.t : item.arrived;
    const took = end === undefined ? "" : showTook(Math.max(0, end - item.t));
    const text = [item.text, item.lost ? "not received" : took].filter(Boolean).join("  ");
    const colour = item.lost || item.bad ? colours.fault : colours[item.kind];
    this.setGround(item, row);
    if (x1 === x2) this.write(x1 + 12, y + 4, this.lane - 24, item.title, text, colour, false);
    else this.write(Math.min(x1, x2) + 8, y + 1, Math.abs(x2 - x1) - 16, item.title, text, colour, true);
  }

  setGround(item, row) {
    const {colours} = this;
    this.ground = this.rows.rows[this.chosen] === row ? colours.chosen : this.hits.has(item.id) ? colours.hit :
      item.rule ? colours.tint : colours.paper;
  }

  drawMark(row, y) {
    const {context: c, colours} = this, {item} = row, x = Math.round(this.x(item.lane));
    const colour = item.rule || (item.bad && item.kind !== "error") ? colours.fault : colours[item.kind];
    const size = this.rowHeight >= LABEL_HEIGHT ? 5 : 2.5;
    c.fillStyle = colour;
    c.strokeStyle = colours.paper;
    c.lineWidth = 2;
    c.beginPath();
    if (item.end === "receive") {
      c.arc(x, y, size * 0.6, 0, 7);
    } else if (item.kind === "fault") {   // a bolt
      const s = size * 1.5;
      for (const [dx, dy] of [[0.2, -1], [-0.7, 0.15], [-0.1, 0.15], [-0.2, 1], [0.7, -0.2], [0.1, -0.2]]) c.lineTo(x + dx * s, y + dy * s);
    } else if (item.kind === "barrier") {
      c.rect(x - size, y - size, size * 0.7, size * 2);
      c.rect(x + size * 0.3, y - size, size * 0.7, size * 2);
    } else if (item.kind === "state") {
      c.rect(x - size * 0.8, y - size * 0.8, size * 1.6, size * 1.6);
    } else if (item.kind === "completion") {
      c.moveTo(x, y - size);
      c.lineTo(x + size, y);
      c.lineTo(x, y + size);
      c.lineTo(x - size, y);
    } else if (item.kind === "error") {
      c.moveTo(x, y - size);
      c.lineTo(x + size * 1.1, y + size * 0.9);
      c.lineTo(x - size * 1.1, y + size * 0.9);
    } else {
      c.arc(x, y, item.kind === "call" || item.kind === "hostcall" ? size * 0.6 : size * 0.9, 0, 7);
    }
    c.closePath();
    c.stroke();
    c.fill();
    this.setGround(item, row);
    this.write(x + 12, y + 4, this.lane - 26, this.rows.titleOf(item), item.text,
               item.kind === "call" && !item.bad ? colours.ink : colour, false);
  }

  drawBundle(row, y) {
    const {context: c, colours} = this, {bundle, item} = row;
    const text = this.rows.describe(bundle), isOpen = this.rows.isUnfolded(bundle);
    const colour = bundle.lost ? colours.fault : colours[item.kind === "data" ? "data" : "call"];
    const title = (isOpen ? "▾ " : "▸ ") + bundle.title;
    this.ground = row === this.rows.rows[this.chosen] ? colours.chosen : colours.paper;
    const x1 = this.x(item.lane);
    if (item.kind !== "data" || item.to === item.lane) {
      const size = this.rowHeight >= LABEL_HEIGHT ? 5 : 2.5;
      c.fillStyle = colour;
      for (const dy of [-size * 0.9, 0, size * 0.9]) c.fillRect(x1 - size, y + dy - size * 0.25, size * 2, size * 0.5);
      this.write(x1 + 12, y + 4, this.lane - 26, title, text, item.kind === "data" ? colour : colours.ink, false);
      return;
    }
    const x2 = this.x(item.to), left = Math.min(x1, x2) + 2, right = Math.max(x1, x2) - 2;
    const middle = this.rowHeight >= LABEL_HEIGHT ? y + this.rowHeight * 0.26 : y, half = Math.min(3, this.rowHeight * 0.2);
    const tips = bundle.isTwoWay ? [left, right] : [x2 > x1 ? right : left];
    c.fillStyle = colour;
    c.fillRect(left + (tips.includes(left) ? 8 : 0), middle - half / 2, right - left - 8 * tips.length, half);
    for (const tip of tips) {
      const back = tip === left ? 9 : -9;
      c.beginPath();
      c.moveTo(tip, middle);
      c.lineTo(tip + back, middle - half * 1.7);
      c.lineTo(tip + back, middle + half * 1.7);
      c.closePath();
      c.fill();
    }
    this.write(left + 8, y + 1, right - left - 16, title, text, colour, true);
  }

  drawAxis(first, last) {
    const {context: c, colours} = this;
    c.fillStyle = colours.paper;
    c.fillRect(4, HEAD_HEIGHT, this.axis - 4, this.height);
    c.strokeStyle = colours.line;
    c.lineWidth = 1;
    c.beginPath();
    c.moveTo(this.axis - 0.5, HEAD_HEIGHT);
    c.lineTo(this.axis - 0.5, this.height);
    c.stroke();
    c.font = "11px ui-monospace, Menlo, 'DejaVu Sans Mono', monospace";
    c.textAlign = "right";
    let before = "", free = -Infinity;
    for (let number = first; number <= last; number++) {
      const row = this.rows.rows[number], y = this.y(number);
      if (row.type === "gap" || y < free) continue;
      const text = showTime(row.t);
      if (text === before) continue;
      before = text;
      free = y + 14;
      c.fillStyle = number === this.chosen ? colours.accent : colours.muted;
      c.fillText(text, this.axis - 8, y + 4);
    }
  }

  drawHead() {
    const {context: c, colours} = this;
    c.fillStyle = colours.raised;
    c.fillRect(0, 0, this.width, HEAD_HEIGHT);
    c.fillStyle = colours.line;
    c.fillRect(0, HEAD_HEIGHT - 1, this.width, 1);
    for (const lane of this.rows.lanes) {
      const x = this.x(lane), isHost = lane.kind === "host";
      c.fillStyle = isHost ? colours.accent : colours.muted;
      c.fillRect(x - 1, HEAD_HEIGHT - 7, 2, 6);
      c.textAlign = "left";
      c.font = "600 13px " + this.family;
      c.fillStyle = isHost ? colours.accent : colours.ink;
      c.fillText(this.cut((isHost ? "host " : "") + lane.label, this.lane - 14), x - 6, 18);
      c.font = "11px " + this.family;
      c.fillStyle = colours.muted;
      const where = lane.sub + (lane.kind !== "host" && lane.host ? "  on " + lane.host : "");
      c.fillText(this.cut(where.trim(), this.lane - 14), x - 6, 33);
    }
    c.fillStyle = colours.raised;
    c.fillRect(0, 0, this.axis - 1, HEAD_HEIGHT - 1);
    c.font = "11px " + this.family;
    c.textAlign = "right";
    c.fillStyle = colours.muted;
    c.fillText("seconds", this.axis - 8, 33);
  }

  rowAt(y) {
    const row = Math.floor((y - HEAD_HEIGHT + this.scroll.scrollTop) / this.rowHeight);
    return y >= HEAD_HEIGHT && row < this.rows.rows.length ? row : -1;
  }

  show(row) {
    const y = row * this.rowHeight, room = this.height - HEAD_HEIGHT - this.rowHeight;
    if (y < this.scroll.scrollTop) this.scroll.scrollTop = Math.max(0, y - room / 3);
    else if (y > this.scroll.scrollTop + room) this.scroll.scrollTop = y - room * 2 / 3;
    const {item} = this.rows.rows[row];
    if (!item || this.contentWidth <= this.width) return;
    const x = this.axis + 22 + item.lane.index * this.lane, left = this.scroll.scrollLeft;
    if (x - left < this.axis + 10 || x - left > this.width - this.lane * 0.8) {
      this.scroll.scrollLeft = x - this.axis - 22 - (this.width - this.axis - this.lane) / 2;
    }
  }
}
