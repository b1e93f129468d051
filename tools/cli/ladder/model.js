// The model: turns the records of the traces into items on lifelines, and joins the two ends of
// messages. Texts of traces are data only. No function here makes markup of these texts.

const KINDS = [
  ["cm", "CM messages"], ["data", "Packets"], ["event", "Events"], ["state", "State changes"],
  ["completion", "Completions"], ["error", "Errors, retries"], ["fault", "Fired rules"],
  ["barrier", "Barriers, clock"], ["process", "Starts, ends"], ["call", "Calls of programs"],
  ["hostcall", "Calls at hosts"],
];
const HIDDEN_AT_FIRST = new Set(["hostcall"]);
// Calls that move data. Consecutive calls of one program are one bundle.
const DATA_CALLS = new Set([
  "post_send", "post_recv", "post_srq_recv", "poll_cq", "start_poll", "next_poll", "end_poll",
  "get_cq_event", "ack_cq_events", "req_notify_cq"]);
const BARRIER_CALLS = new Set(["fault_release"]);
// Reasons of a REJ (IBTA table 110, enum ib_cm_rej_reason).
const REASONS = {
  1: "no QP", 2: "no EEC", 3: "no resources", 4: "timeout", 5: "unsupported", 6: "invalid comm id",
  7: "invalid comm instance", 8: "invalid service id", 9: "invalid transport type", 10: "stale connection",
  11: "RDC not exist", 12: "invalid GID", 13: "invalid LID", 14: "invalid SL", 15: "invalid traffic class",
  16: "invalid hop limit", 17: "invalid packet rate", 18: "invalid alt GID", 19: "invalid alt LID",
  24: "port redirect", 25: "port and CM redirect", 26: "invalid MTU", 27: "insufficient responder resources",
  28: "consumer defined", 29: "invalid RNR retry", 30: "duplicate local comm id", 31: "invalid class version",
  32: "invalid flow label", 33: "invalid alt flow label",
};
const SEND_MANY = 1000;  // the weight of a CM message against the times of two captures

// Bytes as text when all are printable, else as hexadecimal digits.
function showBytes(hex) {
  if (typeof hex !== "string" || /^0*$/.test(hex)) return "";
  const trimmed = hex.replace(/(?:00)+$/, "");
  const bytes = trimmed.match(/../g) || [];
  const text = bytes.map(each => String.fromCharCode(parseInt(each, 16))).join("");
  return /^[ -~]+$/.test(text) ? "“" + text + "”" : "0x" + trimmed;
}

function showValue(value) {
  if (value === null) return "null";
  if (typeof value !== "object") return String(value);
  return JSON.stringify(value);
}

function fieldsText(fields, ...left_out) {
  return Object.entries(fields || {}).filter(([key]) => !left_out.includes(key))
    .map(([key, value]) => key + "=" + showValue(value)).join("  ");
}

class Model {
  constructor(data) {
    this.data = data;
    this.lanes = new Map();
    this.items = [];
    this.isVirtual = data.files.some(file => file.own_clock);
    this.isCaptured = new Set();  // hosts with a capture
    const packets = [];
    for (const [file, line, t, record] of data.records) {
      const item = {t, file, line, record, kind: "", lane: null, title: "", text: "", bad: false, to: null,
                    mate: null, id: this.items.length};
      if (data.files[file].kind === "capture") {
        this.isCaptured.add(record.host);
        packets.push(item);
      } else if (data.files[file].kind === "host") {
        this.addHostRecord(item);
      } else {
        this.addProgramRecord(item);
      }
    }
    this.joinCm();
    this.addPackets(packets);
    this.joinPrograms();
    this.hideTools();
    this.items.sort((a, b) => a.t - b.t || a.id - b.id);
    this.items.forEach((item, id) => { item.id = id; });
    this.order = this.orderLanes();
  }

  lane(key, label, kind, host) {
    let lane = this.lanes.get(key);
    if (!lane) {
      lane = {key, label: String(label), sub: "", kind, host, index: 0, first: this.lanes.size};
      this.lanes.set(key, lane);
    }
    return lane;
  }
  hostLane(name) { return this.lane("h:" + name, name, "host", name); }
  clientLane(name, process) {
    return process ? this.lane("c:" + name + ":" + process, "client " + process, "client", name)
                   : this.hostLane(name);
  }

  add(item, kind, lane, title, text = "") {
    Object.assign(item, {kind, lane, title: String(title), text: String(text)});
    this.items.push(item);
    return item;
  }

  addHostRecord(item) {
    const r = item.record, host = this.hostLane(r.host), {time, host: _, process, kind, object, what, ...rest} = r;
    const more = fieldsText(rest);
    const about = object ? object + "  " : "";
    if (kind === "cm.send" || kind === "cm.receive") {
      const reason = rest.reason === undefined ? "" : "reason " + rest.reason + " " + (REASONS[rest.reason] || "");
      this.add(item, "cm", host, what, reason.trim());
      item.end = kind === "cm.send" ? "send" : "receive";
      if (what === "REJ") item.bad = true;
    } else if (kind === "cm.event") {
      this.add(item, "event", host, String(what).replace("RDMA_CM_EVENT_", ""),
               about + (rest.status ? "status " + rest.status : ""));
      item.to = this.clientLane(r.host, process);
      item.bad = rest.status !== undefined && rest.status !== 0;
    } else if (kind === "async") {
      this.add(item, "event", host, what, about + more);
      item.to = process ? this.clientLane(r.host, process) : null;
    } else if (kind === "qp.state") {
      this.add(item, "state", host, what, object);
      item.bad = /-> ERR|-> SQE/.test(what);
    } else if (kind === "qp.error" || kind === "rc.retry" || kind === "wc.error") {
      this.add(item, "error", host, what, about + more);
      item.bad = true;
    } else if (kind === "fault") {
      const isBarrier = /^hold\b/.test(what);
      this.add(item, isBarrier ? "barrier" : "fault", host, object, what + "  at " + showValue(rest.at ?? ""));
      item.rule = true;
    } else if (kind === "call") {
      const isBarrier = BARRIER_CALLS.has(what);
      const lane = isBarrier ? host : this.clientLane(r.host, process);
      this.add(item, isBarrier ? "barrier" : "hostcall", lane, what, about + (rest.errno ? more : ""));
      item.bad = Boolean(rest.errno);
    } else if (kind === "host" || kind === "process") {
      if (rest.clock && rest.clock !== "real") this.isVirtual = true;
      this.add(item, "process", kind === "host" ? host : this.clientLane(r.host, process), what, more);
    } else {
      this.add(item, "process", this.clientLane(r.host, process), kind + " " + what, about + more);
    }
  }

  addProgramRecord(item) {
    const r = item.record, a = r.arguments || {};
    const lane = this.lane("p:" + item.file + ":" + r.process, "process " + r.process, "program", "");
    if (r.kind === "start") {
      lane.label = String(a.program || "process").split("/").pop();
      lane.sub = "pid " + r.process;
      this.add(item, "process", lane, "start", Array.isArray(a.arguments) ? a.arguments.join(" ") : "");
    } else if (r.kind === "event") {
      const data = showBytes(a.conn && a.conn.private_data);
      this.add(item, "event", lane, r.what, [r.object, a.status ? "status " + a.status : "", data].filter(Boolean).join("  "));
      item.bad = Boolean(a.status);
    } else if (r.kind === "completion") {
      this.add(item, "completion", lane, a.opcode || "completion", [r.what, r.object].join("  "));
      item.bad = r.what !== "SUCCESS";
    } else if (r.kind === "async") {
      this.add(item, "event", lane, r.what, r.object || "");
    } else if (r.kind === "call") {
      this.add(item, "call", lane, r.what,
               [r.object || "", r.errno ? "= " + showValue(r.result) + " " + r.errno : "",
                typeof r.result === "string" ? "= " + r.result : ""].filter(Boolean).join("  "));
      item.bad = Boolean(r.errno) || r.unfinished === true;
    } else {
      this.add(item, r.kind === "lost" ? "error" : "process", lane, r.kind + " " + r.what, fieldsText(a));
      item.bad = r.kind === "lost";
    }
    if (r.injected) {
      item.rule = true;
      item.text += "  injected by " + r.injected;
    }
  }

  // ---- CM messages

  cmKey(what, r) { return [what, r.local_comm_id, r.remote_comm_id, r.request_id].join("|"); }

  // Joins each cm.receive with the latest cm.send of the same message before it.
  joinCm() {
    this.sends = new Map();
    const all = this.items.filter(item => item.end);
    for (const item of all) {
      if (item.end !== "send") continue;
      const key = this.cmKey(item.title, item.record);
      if (!this.sends.has(key)) this.sends.set(key, []);
      this.sends.get(key).push(item);
    }
    for (const item of all) {
      if (item.end !== "receive") continue;
      const sends = this.sends.get(this.cmKey(item.title, item.record)) || [];
      const mate = sends.filter(each => each.mate === null && each.t <= item.t).pop();
      if (!mate) continue;
      mate.mate = item;
      item.mate = mate;
    }
    // The arrow of a lost message ends at the other host of its exchange, or else at the only other
    // host.
    const hosts = [...this.lanes.values()].filter(lane => lane.kind === "host"), exchanges = new Map();
    for (const item of all) {
      if (!item.mate || item.end !== "send") continue;
      for (const id of [item.record.local_comm_id, item.record.remote_comm_id]) {
        if (id !== undefined) exchanges.set(id, [item.lane, item.mate.lane]);
      }
    }
    for (const item of all) {
      if (item.mate || item.end !== "send") continue;
      const ends = exchanges.get(item.record.local_comm_id) || (hosts.length === 2 ? hosts : []);
      item.to = ends.find(lane => lane !== item.lane) || null;
      item.lost = item.to !== null;
    }
  }

  // ---- packets of captures

  addPackets(packets) {
    const owners = this.findOwners(packets);
    const laneOf = address => {
      const votes = owners.get(address);
      if (!votes || votes.size === 0) return this.lane("a:" + address, address, "host", address);
      const lane = this.hostLane([...votes.entries()].sort((a, b) => b[1] - a[1])[0][0]);
      if (!lane.sub.includes(address)) lane.sub += (lane.sub ? " " : "") + address;
      return lane;
    };
    const pairs = this.findPairs(packets);
    const waiting = new Map();
    for (const item of packets) {
      const r = item.record;
      if (r.source === undefined) continue;
      const from = laneOf(r.source), to = laneOf(r.destination);
      const cm = String(r.what).startsWith("CM ");
      if (cm && this.enrich(item)) continue;
      const key = this.packetKey(r), isArrival = to.label === r.host && from !== to;
      const earlier = waiting.get(key) || [];
      const sent = isArrival ? earlier.filter(each => each.arrived === undefined && each.t <= item.t).pop() : null;
      if (sent) {
        sent.arrived = item.t;
        sent.lost = false;
        continue;
      }
      this.addPacket(item, from, to, cm);
      item.pair = pairs(r);
      item.lost = !isArrival && from !== to && this.isCaptured.has(to.label);
      if (!isArrival) waiting.set(key, earlier.concat(item));
    }
  }

  addPacket(item, from, to, cm) {
    const r = item.record;
    const nak = r.answer && r.answer !== "ACK" ? "  " + r.answer : "";
    if (cm) {
      const reason = r.reason === undefined ? "" : "reason " + r.reason + " " + (REASONS[r.reason] || "");
      this.add(item, "cm", from, r.what.slice(3), [reason.trim(), showBytes(r.private_data)].filter(Boolean).join("  "));
      item.bad = r.what === "CM REJ";
    } else {
      this.add(item, "data", from, r.what, "psn " + r.psn + "  " + (r.bytes ? r.bytes + " B" : "") + nak);
      item.bad = nak !== "";
    }
    item.to = to;
    item.packet = true;
  }

  packetKey(r) {
    return [r.source, r.destination, r.destination_qpn, r.psn, r.what, r.syndrome, r.bytes, r.local_comm_id].join("|");
  }

  // Puts a captured CM message's private data into the record of its host. Returns false if no host
  // has a record of the message.
  enrich(item) {
    const r = item.record, sends = this.sends.get(this.cmKey(r.what.slice(3), r)) || [];
    const data = showBytes(r.private_data);
    for (const send of sends) {
      if (send.privateData !== undefined) continue;
      send.privateData = r.private_data || "";
      if (data) send.text = [send.text, data].filter(Boolean).join("  ");
    }
    return sends.length > 0;
  }

  // Finds the host of each address: the sender of a CM message, or the host whose capture has a
  // packet first.
  findOwners(packets) {
    const owners = new Map(), seen = new Map();
    const vote = (address, host, weight) => {
      if (!owners.has(address)) owners.set(address, new Map());
      const votes = owners.get(address);
      votes.set(host, (votes.get(host) || 0) + weight);
    };
    for (const {t, record: r} of packets) {
      if (r.source === undefined) continue;
      if (String(r.what).startsWith("CM ")) {
        const sends = this.sends.get(this.cmKey(r.what.slice(3), r)) || [];
        for (const send of sends) vote(r.source, send.lane.label, SEND_MANY);
      }
      const key = this.packetKey(r), first = seen.get(key);
      if (!first) {
        seen.set(key, {t, host: r.host});
      } else if (first.host !== r.host && first.t < t) {
        vote(r.source, first.host, 1);
        vote(r.destination, r.host, 1);
      }
    }
    return owners;
  }

  // Returns a function that names the QP pair of a packet. A REQ and its REP name both queue pairs.
  // Without a REQ and REP, one queue pair in each direction between two hosts makes a pair.
  findPairs(packets) {
    const asked = new Map(), peer = new Map(), flows = new Map();
    const addresses = r => [r.source, r.destination].sort().join(" ");
    for (const {record: r} of packets) {
      if (r.what === "CM REQ") asked.set(r.local_comm_id, r.local_qpn);
      if (r.what === "CM REP" && asked.has(r.remote_comm_id)) {
        peer.set(r.local_qpn, asked.get(r.remote_comm_id));
        peer.set(asked.get(r.remote_comm_id), r.local_qpn);
      }
      if (String(r.what).startsWith("CM ") || r.destination_qpn === undefined) continue;
      if (!flows.has(addresses(r))) flows.set(addresses(r), new Map());
      flows.get(addresses(r)).set(r.destination_qpn, r.destination);
    }
    return r => {
      const qpn = r.destination_qpn;
      let other = peer.get(qpn);
      const found = flows.get(addresses(r));
      if (other === undefined && found && found.size === 2) other = [...found.keys()].find(each => each !== qpn);
      return addresses(r) + " " + (other === undefined ? qpn : Math.min(qpn, other) + "-" + Math.max(qpn, other));
    };
  }

  // ---- programs and their hosts

  // Joins a program with the host's client that got the same events at the same times. Program and
  // client become one lifeline.
  joinPrograms() {
    const names = new Map(), add = (lane, item, name) => {
      if (!names.has(lane)) names.set(lane, []);
      names.get(lane).push({t: item.t, name});
    };
    for (const item of this.items) {
      if (item.kind !== "event") continue;
      if (item.to && item.record.kind === "cm.event") add(item.to, item, item.title.replace("CONNECT_RESPONSE", "ESTABLISHED"));
      else if (item.record.kind === "event" && item.lane.kind === "program") add(item.lane, item, item.title);
    }
    const joined = new Map();
    for (const [program, events] of names) {
      if (program.kind !== "program") continue;
      let best = null, least = Infinity;
      for (const [client, others] of names) {
        if (client.kind !== "client" || joined.has(client)) continue;
        const count = Math.min(events.length, others.length);
        if (events.slice(0, count).some((each, i) => each.name !== others[i].name)) continue;
        const apart = events.slice(0, count).reduce((sum, each, i) => sum + Math.abs(each.t - others[i].t), 0) / count;
        if (apart < least) [best, least] = [client, apart];
      }
      if (best) joined.set(best, program);
    }
    for (const [client, program] of joined) {
      program.host = client.host;
      this.lanes.delete(client.key);
    }
    for (const item of this.items) {
      if (joined.has(item.lane)) item.lane = joined.get(item.lane);
      if (joined.has(item.to)) item.to = joined.get(item.to);
    }
  }

  // Counts a client without events, such as `rdmaemu wait`, as calls at hosts, which are hidden at
  // first.
  hideTools() {
    const busy = new Set();
    for (const item of this.items) {
      for (const lane of [item.to, item.kind === "hostcall" || item.kind === "process" ? null : item.lane]) busy.add(lane);
    }
    for (const item of this.items) {
      if (item.kind === "process" && item.lane.kind === "client" && !busy.has(item.lane)) item.kind = "hostcall";
    }
  }

  // Returns the lifelines from left to right: each host with its programs. The programs of the
  // first and the last host are outside, so that messages cross no lifeline. Programs of unknown
  // hosts are last.
  orderLanes() {
    const lanes = [...this.lanes.values()].sort((a, b) => a.first - b.first);
    const hosts = lanes.filter(lane => lane.kind === "host");
    const order = [];
    hosts.forEach((host, index) => {
      const own = lanes.filter(lane => lane !== host && lane.kind !== "host" && lane.host === host.host);
      order.push(...(index === 0 && hosts.length > 1 ? [...own, host] : [host, ...own]));
    });
    order.push(...lanes.filter(lane => !order.includes(lane)));
    return order;
  }
}
