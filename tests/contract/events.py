#!/usr/bin/env python3
"""The events of RDMA CM, each with its natural causes, and what every backend did: makes
docs/events.md out of events.toml and of what the runs recorded (events/*.json).

events.py page                       prints the page
events.py check PAGE                 fails when PAGE is not what would be printed
events.py record BACKEND RESULTS     takes over a run's events; RESULTS is what
                                     `tools/softroce test --json` wrote, or the outputs.zip
                                     of contract tests that Bazel ran (one or more files)
"""

import json
import os
import sys
import tomllib
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
BACKENDS = {"emulator": "rdmaemu", "rxe": "rdma_rxe", "emulator_siw": "rdmaemu, profile siw",
            "siw": "siw"}
TESTS_OF = {"emulator_siw": "siw"}  # whose tests a backend runs if a row has several
EVENTS = ("ADDR_RESOLVED ADDR_ERROR ROUTE_RESOLVED ROUTE_ERROR CONNECT_REQUEST CONNECT_RESPONSE "
          "CONNECT_ERROR UNREACHABLE REJECTED ESTABLISHED DISCONNECTED DEVICE_REMOVAL "
          "MULTICAST_JOIN MULTICAST_ERROR ADDR_CHANGE TIMEWAIT_EXIT ADDRINFO_RESOLVED "
          "ADDRINFO_ERROR USER").split()
NONE = "-"  # the test does not run there, or the event did not arrive


class Cause:
    """A row of the page: an event, its cause, and the test that causes it. A backend may have a
    test of its own."""

    def __init__(self, fields):
        self.event, self.cause = fields["event"], fields["cause"]
        if self.event not in EVENTS:
            raise ValueError("events.toml: '%s' is no event" % self.event)
        self.tests = {}
        for backend in BACKENDS:
            own = fields.get(TESTS_OF.get(backend, backend), fields)
            if own.get("test"):
                self.tests[backend] = (own["file"], own["test"])

    def shown_by(self):
        shown = []
        for file, test in self.tests.values():
            text = "`%s` `%s`" % (file, test)
            if text not in shown:
                shown.append(text)
        return "<br>".join(shown) or "none: " + NONE


def causes(path=os.path.join(HERE, "events.toml")):
    with open(path, "rb") as text:
        rows = [Cause(fields) for fields in tomllib.load(text)["event"]]
    missing = set(EVENTS) - {row.event for row in rows}
    if missing:
        raise ValueError("events.toml has no row of %s" % ", ".join(sorted(missing)))
    return sorted(rows, key=lambda row: EVENTS.index(row.event))


def said(event, seen):
    """Returns the different recorded events of one kind in a test, each once and in order."""
    words = []
    for one in seen:
        if one["event"] != "RDMA_CM_EVENT_" + event:
            continue
        text = "status %d" % one["status"]
        if one["private_data_len"]:
            text += ", %d bytes" % one["private_data_len"]
        if text not in words:
            words.append(text)
    return "; ".join(words) or NONE


class Record:
    """The recorded events of a backend's run, by test and event."""

    def __init__(self, backend):
        self.backend = backend
        self.path = os.path.join(HERE, "events", backend + ".json")
        self.said = {}
        if os.path.exists(self.path):
            with open(self.path) as text:
                self.said = json.load(text)

    def cell(self, cause):
        test = self.said.get(" ".join(cause.tests.get(self.backend, ())), {})
        return test.get(cause.event, NONE)

    def take(self, results, rows):
        """Replaces the recorded events by those of these results."""
        new = {}
        for row in rows:
            key = row.tests.get(self.backend)
            for one in results:
                if key == (one["file"], one["test"]) and one["kind"] != "skipped":
                    new.setdefault(" ".join(key), {})[row.event] = said(row.event, one["events"])
        self.said.update(new)
        wanted = {" ".join(row.tests[self.backend]) for row in rows if self.backend in row.tests}
        self.said = {key: self.said[key] for key in sorted(self.said) if key in wanted}

    def store(self):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        with open(self.path, "w") as text:
            json.dump(self.said, text, indent=1, sort_keys=True)
            text.write("\n")

    def stale(self, file, test, events):
        """Returns the difference between a test's run and the record, or ""."""
        for event, text in self.said.get("%s %s" % (file, test), {}).items():
            if said(event, events) != text:
                return ("docs/events.md says that %s comes with '%s', and it came with '%s': if that is "
                        "right, record it again (tests/contract/events.py)" %
                        (event, text, said(event, events)))
        return ""


def read(path):
    if not path.endswith(".zip"):
        with open(path) as text:
            return text.read()
    with zipfile.ZipFile(path) as files:
        return files.read("events.json")


HEAD = """# The events of RDMA CM

Look up here what causes an RDMA CM event, and which contract test shows it. The table has every
event of rdma_get_cm_event(3) with its natural causes. For each backend it has the event's status in
a test run and, if there is any, the length of its private data.

- [Table of events](#table-of-events)
- [Causes that do not exist](#causes-that-do-not-exist)
- [Make this page again](#make-this-page-again)

## Table of events

`-` means that the test has no such event on that backend, or does not run there. siw has no
datagrams and ends connections in its own way. The last three events belong to rdma-core 60, which
the machine of the kernel's drivers does not have. The emulator lacks one cause: the MAC of an
emulated neighbour is made from its address, and does not change.

"""

TAIL = """
## Causes that do not exist

The kernel has no other causes of ADDR_ERROR, ROUTE_ERROR and MULTICAST_ERROR on RoCE and iWARP. It
resolves a route without a query that could fail, and joins a group without a message to a subnet
manager. A reply with another Q_Key than the id's is ADDR_ERROR -22. No other librdmacm can send
such a reply, so the unit tests of `emulator/cm` check it.

## Make this page again

This page is generated from test runs: `tests/contract/events.py page > docs/events.md`. The script
describes how to record a run. Each run of these tests fails when it gets other events, and a test
fails when this page is stale.
"""


def page():
    records = {backend: Record(backend) for backend in BACKENDS}
    text = HEAD + "| event | natural cause | %s | test |\n|---|---|%s---|\n" % (
        " | ".join(BACKENDS.values()), "---|" * len(BACKENDS))
    previous = None
    for row in causes():
        name = "" if row.event == previous else row.event
        previous = row.event
        text += "| %s | %s | %s | %s |\n" % (
            name, row.cause, " | ".join(records[backend].cell(row) for backend in BACKENDS),
            row.shown_by())
    return text + TAIL


def main():
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        if command == "page" and len(sys.argv) == 2:
            sys.stdout.write(page())
        elif command == "check" and len(sys.argv) == 3:
            with open(sys.argv[2], encoding="utf-8") as there:
                if there.read() != page():
                    sys.exit("docs/events.md is stale; make it again: tests/contract/events.py page "
                             "> docs/events.md")
        elif command == "record" and len(sys.argv) > 3 and sys.argv[2] in BACKENDS:
            record = Record(sys.argv[2])
            results = []
            for path in sys.argv[3:]:
                results += json.loads(read(path))["tests"]
            record.take([one for one in results
                         if one.get("backend", record.backend) == record.backend], causes())
            record.store()
        else:
            sys.exit(__doc__)
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
