#!/usr/bin/env python3
"""What holds on one backend and not on another: reads tests/contract/differences.toml, judges results
by it, and makes docs/differences.md out of it and of the tables in accepted/ beside it.

differences.py TABLE          prints the page
differences.py TABLE PAGE     fails when PAGE is not what would be printed
"""

import fnmatch
import os
import re
import sys
import tomllib

BACKENDS = {
    "emulator": "rdmaemu",
    "rxe": "the kernel's rdma_rxe with rdma-core's libraries",
    "siw": "the kernel's siw with rdma-core's libraries",
    "virtual": "rdmaemu with --clock virtual (docs/time.md)",
}
REASONS = {
    "defect": "a defect of that backend, not copied",
    "limit": "a limit of the emulator",
    "habit": "a permitted habit of that device",
    "layout": "the machine under that backend lacks what the test needs",
    "time": "the test asserts that something has not happened yet, and time jumps when no application is awaited",
}
HOWS = {
    "fails": "fails",
    "hangs": "hangs",
    "crashes": "takes the program down",
}
KEYS = {"file", "test", "on", "how", "what", "reason"}
HANG_LIMIT_S = 15  # a test that hangs by the table gets no more time


class Row:
    def __init__(self, number, fields):
        where = "difference %d (%s)" % (number, fields.get("test", "no test"))
        if set(fields) != KEYS:
            raise ValueError("%s: needs exactly %s" % (where, ", ".join(sorted(KEYS))))
        self.file, self.test, self.on = fields["file"], fields["test"], fields["on"]
        self.how, self.what, self.reason = fields["how"], fields["what"], fields["reason"]
        for value, allowed in [(self.how, HOWS), (self.reason, REASONS)] + [
                (one, BACKENDS) for one in self.on]:
            if value not in allowed:
                raise ValueError("%s: '%s' is none of %s" % (where, value, ", ".join(allowed)))
        self.used = set()  # backends on which a test ran

    def matches(self, file, test):
        return file == self.file and fnmatch.fnmatchcase(test, self.test)


class Table:
    def __init__(self, path):
        with open(path, "rb") as text:
            rows = tomllib.load(text).get("difference", [])
        self.rows = [Row(number, fields) for number, fields in enumerate(rows, 1)]

    def row(self, backend, file, test):
        for row in self.rows:
            if backend in row.on and row.matches(file, test):
                return row
        return None

    def judge(self, backend, file, result):
        """Returns the kind and text of a result with regard to the table. A failure in the table is
        `differs`. A test in the table that passes or is skipped has failed."""
        row = self.row(backend, file, result.name)
        if row is None:
            return result.kind, result.text
        row.used.add(backend)
        if result.kind == "failed":
            return "differs", "%s (%s)" % (row.what, REASONS[row.reason])
        return "failed", ("it is %s on %s, and differences.toml says that it %s there: take it from "
                          "the table (%s)" % (result.kind, backend, HOWS[row.how], row.what))

    def unused(self, backend, file):
        """Returns the rows of this file and backend without a result."""
        return [row for row in self.rows
                if row.file == file and backend in row.on and backend not in row.used]


HEAD = """# Where backends differ

Look up here which contract tests do not pass on each backend, and why. The contract tests
(`tests/contract`) check the behaviour of the public API. The same binaries run on the emulator
(`tools/test`), once more under each of its clocks, and on the kernel's own drivers in a virtual
machine:

```sh skip="needs the source tree and a virtual machine"
tools/softroce test
tools/softroce test --on siw
```

{contents}

The runners expect exactly the failures of this page. A test that this page names and that passes
fails the run. The [last part](#what-programs-see-differently-on-rxe) of this page is about tests
that pass on both backends, and whose programs see something different.

This page does not list tests of features that one kind of transport has by design and another does
not. The runners skip these tests on the other transport, each with the rule as reason
(`tests/contract/support/transport.h`). `siw_cm_test`, `siw_data_test` and `siw_device_test` check
what iWARP does instead.

To generate this page again, run
`tests/contract/differences.py tests/contract/differences.toml > docs/differences.md`. A test fails
when the page is stale.

"""

SEEN_HEAD = """## What programs see differently on %(driver)s

`tools/softroce compare` runs each contract test on the emulator and on %(driver)s, and compares all
calls, events and completions of the two runs ([ab.md](ab.md)). A difference that this table does not
have fails the run. So does a row that no test needs, unless it says "sometimes": such a difference
depends on a race.

| tests | what | where it differs | reason |
|---|---|---|---|
"""


def seen_differently(path):
    """Returns the section of one table of tools/softroce compare."""
    driver = os.path.splitext(os.path.basename(path))[0]
    with open(path, "rb") as text:
        rows = tomllib.load(text).get("accept", [])
    text = SEEN_HEAD % {"driver": driver}
    for row in rows:
        what = {"*": "any record"}.get(row["what"], "`%s`" % row["what"])
        if "kind" in row:
            what = "%s: %s" % (row["kind"], what)
        where = ", ".join("`%s`" % part for part in row.get("parts", [])) or {
            "a": "the whole record, emulator", "b": "the whole record, " + driver}.get(
                row.get("only"), "any part")
        text += "| %s | %s%s | %s | %s |\n" % (
            ", ".join("`%s`" % test for test in row["tests"]), what,
            ", sometimes" if row.get("sometimes") else "", where, row["reason"])
    return text


def contents(text):
    """Returns a list of links to the page's sections. The anchors are those of GitHub and GitLab."""
    return "".join("- [%s](#%s)\n" % (
        heading, re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-"))
        for heading in re.findall("^## (.*)$", text, re.MULTILINE))


def page(table, accepted=()):
    text = HEAD
    for backend, name in BACKENDS.items():
        rows = sorted((row for row in table.rows if backend in row.on),
                      key=lambda row: (list(REASONS).index(row.reason), row.file, row.test))
        text += "## On %s: %s\n\n" % (backend, name)
        if not rows:
            text += "All tests pass.\n\n"
            continue
        for reason, meaning in REASONS.items():
            mine = [row for row in rows if row.reason == reason]
            if not mine:
                continue
            text += "%s:\n\n| test | result | behaviour of that backend |\n|---|---|---|\n" % (
                meaning[0].upper() + meaning[1:])
            text += "".join("| `%s` `%s` | %s | %s |\n" % (
                row.file, row.test, HOWS[row.how], row.what) for row in mine) + "\n"
    text = "\n".join([text.rstrip("\n") + "\n"] + [seen_differently(path) for path in accepted])
    return text.replace("{contents}\n", contents(text))


def accepted_tables(table):
    """Returns the paths of the tables of tools/softroce compare."""
    folder = os.path.join(os.path.dirname(table), "accepted")
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))
            if name.endswith(".toml")]


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    try:
        made = page(Table(sys.argv[1]), accepted_tables(sys.argv[1]))
    except ValueError as error:
        sys.exit("%s: %s" % (sys.argv[1], error))
    if len(sys.argv) == 2:
        sys.stdout.write(made)
        return
    with open(sys.argv[2], encoding="utf-8") as there:
        if there.read() != made:
            sys.exit("docs/differences.md is stale; make it again: tests/contract/differences.py "
                     "tests/contract/differences.toml > docs/differences.md")


if __name__ == "__main__":
    main()
