#!/usr/bin/env python3
"""Prints the CM events of several hosts' traces as one timeline, and the hosts' totals.

Usage: timeline.py HOSTS_JSON TRACE...

HOSTS_JSON is the output of `rdmaemu hosts --json`, a TRACE is what `--trace` wrote. All hosts of a
machine stamp their records from the same clock, so the lines can be merged by time.
"""
import json
import sys

# The keys of a record that have their own columns.
COLUMNS = ("time", "host", "process", "kind", "object", "what")


def read_events(path):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            if record["kind"] == "cm.event":
                yield record


def print_timeline(paths):
    events = sorted((event for path in paths for event in read_events(path)),
                    key=lambda event: event["time"])
    print("\nCM events of both hosts:")
    print("  {:>10}  {:<5} {:<8} {}".format("ms", "host", "id", "event"))
    for event in events:
        details = "  ".join("{}={}".format(key, value) for key, value in event.items()
                            if key not in COLUMNS)
        print("  {:>10.3f}  {:<5} {:<8} {:<18} {}".format(
            (event["time"] - events[0]["time"]) * 1000, event["host"],
            event["object"].removeprefix("id "), event["what"], details).rstrip())
    return bool(events)


def print_totals(hosts):
    print("\nTotals:")
    print("  {:<5} {:>9} {:>12} {:>13} {:>15} {:>12} {:>16}".format(
        "host", "messages", "bytes", "packets sent", "packets received", "CM messages",
        "retransmissions"))
    for host in hosts:
        counters = host["counters"]
        print("  {:<5} {:>9} {:>12} {:>13} {:>16} {:>12} {:>15}".format(
            host["name"], counters["messages_sent"], counters["bytes_sent"],
            counters["datagrams_sent"], counters["datagrams_received"],
            counters["cm_messages_sent"], counters["retransmissions"]))


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as status:
        hosts = json.load(status)
    if not print_timeline(sys.argv[2:]):
        sys.exit("error: the traces hold no CM event; was the host started with --trace?")
    print_totals(hosts)


if __name__ == "__main__":
    main()
