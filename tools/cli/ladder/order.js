// The order of the records: aligns captures with traces, and puts causes before effects.

// The most that a capture and a trace of one host differ at a message without a difference of clocks.
const CLOCK_SLACK_NS = 20e3;
// The most that a receive record may precede its send record.
const SKEW_NS = 1e9;

function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[sorted.length >> 1];
}

// Joins the senders' and the receivers' records of one message, each in the order of their file.
// With as many receives as sends the n-th belongs to the n-th. Otherwise a receive belongs to the
// latest send before it, because the earlier sends of the message were lost.
function pairUp(sends, receives) {
  if (sends.length === receives.length) return receives.map((receive, n) => [sends[n], receive]);
  const open = [], pairs = [];
  let next = 0;
  for (const receive of receives) {
    while (next < sends.length && sends[next].t <= receive.t) open.push(sends[next++]);
    const isSkewed = open.length === 0 && next < sends.length && sends[next].t <= receive.t + SKEW_NS;
    const send = isSkewed ? sends[next++] : open.pop();
    if (send) pairs.push([send, receive]);
  }
  return pairs;
}

function groupBy(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

class Captures {
  // `packets`: the packets of all captures. `records`: the CM records of the traces.
  constructor(packets, records, cmKey, packetKey, isVirtual) {
    this.packets = packets.filter(({record}) => record.source !== undefined);
    this.records = records;
    this.cmKey = cmKey;
    this.packetKey = packetKey;
    this.slack = isVirtual ? 0 : CLOCK_SLACK_NS;
    this.byHost = groupBy(this.packets, ({record}) => record.host);
    this.aligned = new Set();
    this.votes = new Map();
    this.joinWithTraces();
    this.findOwners();
    this.alignWithEachOther();
  }

  shift(host, by) {
    for (const packet of this.byHost.get(host)) {
      packet.t += by;
      packet.shift += by;
    }
  }

  // Joins each captured CM message with the record of its host (`same`), and moves the capture to
  // the clock of the trace.
  joinWithTraces() {
    const records = groupBy(this.records, item => item.record.host + " " + this.cmKey(item.title, item.record));
    for (const [host, packets] of this.byHost) {
      const messages = packets.filter(({record}) => String(record.what).startsWith("CM "));
      const all = [];
      for (const [key, group] of groupBy(messages, ({record}) => host + " " + this.cmKey(record.what.slice(3), record))) {
        const mine = records.get(key) || [], sent = mine.filter(item => item.end === "send");
        // A message within one host has both records, and is captured once.
        if (mine.length > 0) all.push([group, sent.length > 0 ? sent : mine]);
      }
      if (all.length === 0) continue;
      this.aligned.add(host);
      const certain = all.filter(([group, mine]) => group.length === mine.length);
      const by = median((certain.length > 0 ? certain : all).map(([group, mine]) => mine[0].t - group[0].t));
      if (Math.abs(by) > this.slack) this.shift(host, by);
      for (const [group, mine] of all) this.joinSame(group, mine);
    }
  }

  joinSame(group, mine) {
    const free = new Set(group);
    mine.forEach((item, n) => {
      let packet = group.length === mine.length ? group[n] : null;
      if (!packet) {
        for (const each of free) if (!packet || Math.abs(each.t - item.t) < Math.abs(packet.t - item.t)) packet = each;
      }
      if (!packet) return;
      free.delete(packet);
      packet.same = item;
      item.same = packet;
      this.vote(item.end === "send" ? packet.record.source : packet.record.destination, packet.record.host, 1000);
    });
  }

  vote(address, host, weight) {
    if (!this.votes.has(address)) this.votes.set(address, new Map());
    const votes = this.votes.get(address);
    votes.set(host, (votes.get(host) || 0) + weight);
  }
  owner(address) {
    const votes = [...(this.votes.get(address) || [])].sort((a, b) => b[1] - a[1]);
    return votes.length === 0 || (votes.length > 1 && votes[0][1] === votes[1][1]) ? undefined : votes[0][0];
  }

  // Finds the host of each address. A CM record names it. Otherwise each packet of a capture has the
  // address of its host, and a packet needs time from its sender to its receiver.
  findOwners() {
    const records = groupBy(this.records, item => this.cmKey(item.title, item.record));
    for (const {record: r, same} of this.packets) {
      if (same || !String(r.what).startsWith("CM ")) continue;
      for (const item of records.get(this.cmKey(r.what.slice(3), r)) || []) {
        this.vote(item.end === "send" ? r.source : r.destination, item.record.host, 1000);
      }
    }
    const hosts = [...this.byHost.keys()];
    hosts.forEach((a, n) => hosts.slice(n + 1).forEach(b => this.compareTimes(a, b)));
    for (const [host, packets] of this.byHost) {
      let common = null;
      for (const {record: r} of packets) {
        const both = [r.source, r.destination];
        common = common ? common.filter(each => both.includes(each)) : [...new Set(both)];
      }
      const others = common.filter(each => this.owner(each) === undefined || this.owner(each) === host);
      if (others.length === 1 && common.length <= 2) this.vote(others[0], host, 10);
    }
  }

  // The packets that are once in both captures.
  sharedPackets(a, b) {
    const count = host => groupBy(this.byHost.get(host), ({record}) => this.packetKey(record));
    const ofB = count(b), shared = [];
    for (const [key, group] of count(a)) {
      const other = ofB.get(key);
      if (group.length === 1 && other && other.length === 1) shared.push({record: group[0].record, apart: other[0].t - group[0].t});
    }
    return shared;
  }

  compareTimes(a, b) {
    for (const [, group] of groupBy(this.sharedPackets(a, b), ({record: r}) => [r.source, r.destination].sort().join(" "))) {
      const {source, destination} = group[0].record;
      const there = group.filter(each => each.record.source === source).map(each => each.apart);
      const back = group.filter(each => each.record.source !== source).map(each => each.apart);
      const ahead = median(there) - (back.length > 0 ? median(back) : 0);
      if (ahead === 0) continue;
      this.vote(source, ahead > 0 ? a : b, 1);
      this.vote(destination, ahead > 0 ? b : a, 1);
    }
  }

  // Moves a capture without a trace if its clock is not that of another capture: a packet would
  // arrive before it is sent.
  alignWithEachOther() {
    const hosts = [...this.byHost.keys()].sort((a, b) => this.aligned.has(b) - this.aligned.has(a));
    hosts.forEach((b, n) => {
      if (this.aligned.has(b)) return;
      for (const a of hosts.slice(0, n)) {
        const shared = this.sharedPackets(a, b);
        if (shared.length === 0) continue;
        const fromA = shared.filter(each => this.owner(each.record.source) === a).map(each => each.apart);
        const fromB = shared.filter(each => this.owner(each.record.source) === b).map(each => -each.apart);
        const there = Math.min(...fromA), back = Math.min(...fromB);  // Infinity without packets
        let by = 0;
        if (fromA.length + fromB.length === 0) by = -median(shared.map(each => each.apart));
        else if (there < 0 || back < 0) by = back === Infinity ? -there : there === Infinity ? back : (back - there) / 2;
        if (by !== 0) this.shift(b, Math.round(by));
        break;
      }
    });
  }
}

// Merges the records of the files by time. A record is behind the records before it in its file, and
// behind its causes (`after`). A packet and the record of the same message (`same`) are one record.
// Of records at one time, those that others may wait for are last: each host goes on as far as it
// can, and then the message is sent and received.
function mergeByCause(sequences) {
  const next = sequences.map(() => 0), placed = new Set(), order = [];
  const head = file => sequences[file][next[file]];
  const isHead = item => head(item.file) === item;
  const isFree = item => (item.after || []).every(each => placed.has(each));
  const isReady = item => isFree(item) && (!item.same || (isHead(item.same) && isFree(item.same)));
  const rank = item => {
    const {end} = item.same && !item.end ? item.same : item;
    return end === "receive" || item.after ? 0 : item.record.kind === "packet" && !item.same ? 1 : end === "send" ? 3 : 2;
  };
  const isBefore = (a, b) => a.t - b.t || rank(a) - rank(b) || a.id - b.id;
  for (;;) {
    let best = null, first = null;
    for (let file = 0; file < sequences.length; file++) {
      while (next[file] < sequences[file].length && placed.has(head(file))) next[file]++;
      const item = head(file);
      if (!item) continue;
      if (!first || isBefore(item, first) < 0) first = item;
      if (isReady(item) && (!best || isBefore(item, best) < 0)) best = item;
    }
    if (!first) return order;
    const item = best || first;   // without `best` the files contradict each other
    for (const each of item.same ? [item, item.same] : [item]) {
      placed.add(each);
      order.push(each);
    }
  }
}
