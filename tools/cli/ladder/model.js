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
    this.jumps = new Map();  // host -> {times, sums}: times after jumps, and the sums of the jumps
    this.isCaptured = new Set();  // hosts with a capture
    const packets = [], sequences = data.files.map(() => []);
    let count = 0;
    for (const [file, line, t, record] of data.records) {
      if (data.files[file].kind === "host" && record.kind === "clock" && record.what === "jump") {
        this.addJump(record.host, t, record.by_ns);
        continue;
      }
      const item = {t, file, line, record, kind: "", lane: null, title: "", text: "", bad: false, to: null,
                    mate: null, id: count++, shift: 0};
      sequences[file].push(item);
      if (data.files[file].kind === "capture") {
        this.isCaptured.add(record.host);
        packets.push(item);
      } else if (data.files[file].kind === "host") {
        this.addHostRecord(item);
      } else {
        this.addProgramRecord(item);
      }
    }
    this.messages = this.items.filter(item => item.end);
    this.captures = new Captures(packets, this.messages, this.cmKey, this.packetKey, this.isVirtual);
    this.beginAtZero(sequences);
    this.joinCm();
    this.addPackets();
    this.endCm();
    this.joinPrograms();
    this.hideTools();
    const shown = new Set(this.items);
    this.items = mergeByCause(sequences).filter(item => shown.has(item));
    this.items.forEach((item, id) => { item.id = id; });
    this.order = this.orderLanes();
  }

  // An aligned capture may begin before the other files.
  beginAtZero(sequences) {
    const first = sequences.reduce((least, [item]) => item ? Math.min(least, item.t) : least, 0);
    if (first === 0) return;
    for (const item of sequences.flat()) {
      item.t -= first;
      item.shift -= first;
    }
    for (const {times} of this.jumps.values()) times.forEach((t, n) => { times[n] = t - first; });
  }

  // Returns how far the clock jumped between two records. The hosts that share a clock record the
  // same jumps.
  jumpedBetween(before, after) {
    if (this.jumps.size === 0) return this.isVirtual ? after - before : 0;  // of an embedded host
    const sumUntil = ({times, sums}, t) => {
      let low = 0, high = times.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (times[middle] <= t) low = middle + 1; else high = middle;
      }
      return low === 0 ? 0 : sums[low - 1];
    };
    let most = 0;
    for (const all of this.jumps.values()) most = Math.max(most, sumUntil(all, after) - sumUntil(all, before));
    return Math.min(most, after - before);
  }
  addJump(host, t, by) {
    if (!this.jumps.has(host)) this.jumps.set(host, {times: [], sums: []});
    const {times, sums} = this.jumps.get(host);
    sums.push(by + (sums.length === 0 ? 0 : sums[sums.length - 1]));
    times.push(t);
  }

  lane(key, label, kind, host) {
    let lane = this.lanes.get(key);
    if (!lane) {
      lane = {key, label: String(label), sub: "", kind, host, index: 0, first: this.lanes.size};
      this.lanes.set(key, lane);
    }
    return lane;
  }
  hostLane(name) {
    const lane = this.lane("h:" + name, name, "host", name);
    lane.isKnown = true;   // the page has its trace or its capture
    return lane;
  }
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
    } else if (kind === "fault.release") {
      this.add(item, "barrier", host, object, "released, " + rest.items + (rest.items === 1 ? " item" : " items"));
    } else if (kind === "clock") {
      this.add(item, "barrier", host, "clock " + what, rest.by_ns ? "by " + showTook(rest.by_ns) : "");
    } else if (kind === "call") {
      this.add(item, "hostcall", this.clientLane(r.host, process), what, about + (rest.errno ? more : ""));
      item.bad = Boolean(rest.errno);
    } else if (kind === "host" || kind === "process") {
      // A scaled clock has an origin of its own, and does not jump.
      if (String(rest.clock).startsWith("scaled")) this.isVirtual = false;
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

  // Joins the two records of each message, and the faults with the messages that they took.
  joinCm() {
    for (const [, group] of groupBy(this.messages, item => this.cmKey(item.title, item.record))) {
      const [sends, receives] = ["send", "receive"].map(end => group.filter(item => item.end === end));
      for (const [send, receive] of pairUp(sends, receives)) {
        send.mate = receive;
        receive.mate = send;
        receive.after = [send];
      }
    }
    for (const item of this.items) {
      const {kind, at} = item.record;
      if (item.rule && kind === "fault" && typeof at === "string" && /^cm(\.|$)/.test(at)) this.joinFault(item);
    }
  }

  // A fault at the receiver of a message without a receive record took this message. The message
  // has arrived, except if the rule drops it.
  joinFault(fault) {
    const {at, what} = fault.record, name = at.slice(3).toUpperCase(), drops = /\bdrop\b/.test(what);
    const isOfFault = item => (name === "" || item.title === name) && Math.abs(fault.t - item.t) <= SKEW_NS;
    const before = this.messages.filter(item => item.end === "send" && isOfFault(item) && item.t <= fault.t + this.captures.slack);
    const inFlight = before.some(send => send.mate && send.mate.lane === fault.lane && send.mate.end && send.mate.t >= fault.t);
    if (inFlight && !/\b(drop|reject)\b/.test(what)) return;
    this.orderFault(fault, name, what);
    const open = before.filter(item => !item.mate && !item.fault);
    const isThere = item => !item.same || [fault.lane.label, undefined].includes(this.captures.owner(item.same.record.destination));
    const send = open.filter(item => item.lane !== fault.lane && isThere(item)).pop();
    if (!send) {
      const own = drops ? open.filter(item => item.lane === fault.lane).pop() : null;
      if (own) own.fault = fault;
      return;
    }
    send.fault = fault;
    send.to = fault.lane;
    fault.after = [...(fault.after || []), send];
    if (drops) return;
    send.mate = fault;
    fault.mate = send;
    const id = send.record.local_comm_id;
    const answer = this.messages.find(item => item.end === "receive" && !item.mate && !item.from &&
      /^(REJ|SIDR_REP)$/.test(item.title) && item.lane === send.lane && item.t >= send.t &&
      (id !== undefined ? item.record.remote_comm_id === id : item.record.request_id === send.record.request_id));
    if (!answer || !/\breject\b/.test(what)) return;
    answer.from = fault.lane;
    answer.after = [fault];
  }

  // Puts a fault behind the captured message that it took, and before the answer of the host to it.
  orderFault(fault, name, what) {
    const near = (item, start) => !item.same && String(item.record.what).startsWith(start) &&
      Math.abs(fault.t - item.t) <= SKEW_NS;
    const packets = this.captures.byHost.get(fault.record.host) || [];
    const distance = item => Math.abs(fault.t - item.t);
    const taken = packets.filter(item => near(item, "CM " + name) && !item.takenBy)
      .reduce((best, item) => best && distance(best) <= distance(item) ? best : item, null);
    if (!taken) return;
    taken.takenBy = fault;
    fault.after = [taken];
    if (!/\breject\b/.test(what)) return;
    const answer = packets.find(item => near(item, "CM ") && /^CM (REJ|SIDR_REP)$/.test(item.record.what) && !item.after &&
      item.id > taken.id && (taken.record.local_comm_id !== undefined ?
        item.record.remote_comm_id === taken.record.local_comm_id : item.record.request_id === taken.record.request_id));
    if (answer) answer.after = [fault];
  }

  // Decides about the messages without a receive record. A message is lost if its receiver is a host
  // of the page. Nothing is known of other receivers.
  endCm() {
    const hosts = [...this.lanes.values()].filter(lane => lane.kind === "host" && lane.isKnown);
    const exchanges = new Map(), strangers = new Set();
    const ids = item => [item.record.local_comm_id, item.record.remote_comm_id, item.record.request_id].filter(Boolean);
    for (const item of this.messages) {
      const other = item.end === "send" ? item.mate && item.mate.lane : item.mate ? item.mate.lane : item.from;
      for (const id of ids(item)) {
        if (other) exchanges.set(id, [item.lane, other]);
        else if (item.end === "receive") strangers.add(id);
      }
    }
    const listens = new Set(this.items.filter(item => item.record.kind === "call" && item.title === "listen")
      .map(item => item.record.host));
    for (const item of this.messages) {
      if (item.mate || item.end !== "send") continue;
      const exchange = ids(item).map(id => exchanges.get(id)).find(Boolean) || [];
      const others = hosts.filter(lane => lane !== item.lane && listens.has(lane.label));
      if (!item.to) item.to = exchange.find(lane => lane !== item.lane) || null;
      if (!item.to && others.length === 1 && !ids(item).some(id => strangers.has(id))) item.to = others[0];
      const isDropped = item.fault !== undefined;
      item.lost = isDropped || (item.to !== null && item.to.isKnown && item.arrived === undefined);
      if (!item.to) {
        item.isOpen = true;
        item.text = [item.text, "no trace of this host"].filter(Boolean).join("  ");
      }
    }
  }

  // ---- packets of captures

  addPackets() {
    const captures = this.captures, packets = captures.packets;
    const laneOf = address => {
      const owner = captures.owner(address);
      if (owner === undefined) {
        const lane = this.lane("a:" + address, address, "host", address);
        const isGroup = /^(22[4-9]|23\d)\.|^ff/.test(address);
        if (!isGroup && (this.isCaptured.size < 2 || !this.isShared(address))) lane.sub = "no trace of this host";
        return lane;
      }
      const lane = this.hostLane(owner);
      if (!lane.sub.includes(address)) lane.sub += (lane.sub ? " " : "") + address;
      return lane;
    };
    const pairs = this.findPairs(packets);
    this.joinPackets(packets);
    for (const item of packets) {
      const r = item.record, from = laneOf(r.source), to = laneOf(r.destination);
      const cm = String(r.what).startsWith("CM ");
      if (cm && this.enrich(item, from, to)) continue;
      if (item.sentBy) continue;
      this.addPacket(item, from, to, cm);
      item.pair = pairs(r);
      const isArrival = captures.owner(r.destination) === r.host && from !== to;
      const isSeen = this.isCaptured.has(to.label) || (!captures.owner(r.destination) && this.isShared(r.destination));
      item.lost = item.arrived === undefined && !isArrival && from !== to && isSeen;
    }
  }

  // Joins the packets of the sender's capture with those of the receiver's.
  joinPackets(packets) {
    this.shared = new Map();  // address -> hosts whose captures have its packets
    for (const {record: r} of packets) {
      for (const address of [r.source, r.destination]) {
        if (!this.shared.has(address)) this.shared.set(address, new Set());
        this.shared.get(address).add(r.host);
      }
    }
    for (const [, group] of groupBy(packets, ({record}) => this.packetKey(record))) {
      const byHost = groupBy(group, ({record}) => record.host);
      if (byHost.size < 2) continue;
      const source = this.captures.owner(group[0].record.source), destination = this.captures.owner(group[0].record.destination);
      const sends = byHost.get(byHost.has(source) ? source : [...byHost.keys()].find(host => host !== destination));
      const arrivals = [...byHost.values()].find(each => each !== sends);
      for (const [sent, arrival] of pairUp(sends, arrivals)) {
        sent.arrived = Math.max(arrival.t, sent.t);
        arrival.sentBy = sent;
        arrival.after = [...(arrival.after || []), sent];
      }
    }
  }
  isShared(address) { return this.shared.has(address) && this.shared.get(address).size > 1; }

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

  // Puts what a captured CM message says into the record of its host, or of the other host. Returns
  // false if neither has a record of the message.
  enrich(packet, from, to) {
    const r = packet.record;
    let item = packet.same;
    if (!item) {
      const group = this.messagesOf(this.cmKey(r.what.slice(3), r));
      const near = group.filter(each => !each.same || each.same.sentBy === packet || packet.sentBy === each.same);
      const isArrival = this.captures.owner(r.destination) === r.host;
      const isOther = each => each.end === (isArrival ? "send" : "receive");
      item = near.find(each => isOther(each) && !each.other);
      if (!item) return group.some(isOther);
      item.other = packet;
      if (item.end === "receive") (item.after = item.after || []).push(packet);
      else {
        (packet.after = packet.after || []).push(item);
        item.arrived = Math.max(packet.t, item.t);
      }
    }
    if (item.end === "send" && !item.mate && !item.to) item.to = to;
    if (item.end === "receive" && !item.mate && from !== to) item.from = from;
    const data = showBytes(r.private_data);
    for (const each of [item, item.end === "receive" ? item.mate : null]) {
      if (!each || each.privateData) continue;
      each.privateData = r.private_data || "";
      if (data && (each.end === "send" || each.from)) each.text = [each.text, data].filter(Boolean).join("  ");
    }
    return true;
  }
  messagesOf(key) {
    if (!this.byKey) this.byKey = groupBy(this.messages, item => this.cmKey(item.title, item.record));
    return this.byKey.get(key) || [];
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
