#!/usr/bin/env python3
"""Makes docs/checks.md from the rules of the usage checks.

page.py RULES          prints the page
page.py RULES PAGE     fails when PAGE is not what would be printed
"""

import re
import sys

GROUPS = {
    "CM": "RDMA CM",
    "CQ": "Completion queues and channels",
    "QP": "Queue pairs, shared receive queues and address handles",
    "MR": "Memory regions and protection domains",
    "THREAD": "Threads, processes and signal handlers",
    "EXIT": "What is left at exit",
}

HEAD = """# Usage checks

    rdmaemu run --check -- ./my_test
    rdmaemu run --check=error --backend system --device rxe0 -- ./my_test

The first command checks how `./my_test` and its children use libibverbs and librdmacm, and prints each mistake. The second does so on the machine's own device, and fails with status 121 when the test succeeded and there was a finding.

    rdmaemu check: RDMAEMU-CM-005: rdma_destroy_id while the id has a queue pair
      call:   rdma_destroy_id at rping+0x2a8f
      detail: id->qp is qp1
      id2:    created by rdma_get_cm_event at rping+0x338e
      qp1:    created by rdma_create_qp at rping+0x41ed, rping+0x29dd, rping+0x3160
      source: rdma_destroy_id(3): users must free any associated QP with the rdma_cm_id before calling this routine
      mend:   Call rdma_destroy_qp(id) before rdma_destroy_id(id), or use rdma_destroy_ep.

- `addr2line -e rping 0x2a8f` prints the file and the line.
- `run` prints a finding once for each rule, place and process, within 50 ms. It also prints at the end how often each rule was broken.
- `--check-json FILE` also writes the findings as JSON lines, with the keys `rule`, `title`, `process`, `call`, `place`, `detail`, `objects`, `source`, `mend` and `times`.
- The checks see the program's own calls. Calls that librdmacm makes inside its functions do not count.
- A call with a destroyed object is not made. It fails with EINVAL.
- Without `--check` nothing of this is loaded. With it, posting and polling cost what they cost without it.

## Contents

- [Rules](#rules)
- [What Debian's programs do](#what-debians-programs-do)
- [Limits](#limits)

"""

TAIL = """## What Debian's programs do

These programs run under the checks in `tests/checks`, and break only these rules:

| program | rules | what it does |
|---|---|---|
| rping | RDMAEMU-CM-005 | The server destroys the id of a connection before its queue pair |
| rping, cmtime, mckey | RDMAEMU-THREAD-001 | The main thread destroys the event channel on which another thread waits |
| ucmatose, cmtime | RDMAEMU-CM-024 | The connection has rnr_retry_count 0. The programs post their receives first |
| ib_write_bw, ib_send_lat and others of perftest | RDMAEMU-EXIT-012 | The device list is never freed |
| the same with `-R` | RDMAEMU-EXIT-002, -003, -011 | The id and the event channel of the exchange, and the device, stay open |
| ib_send_bw | RDMAEMU-EXIT-005 | The second completion queue stays |

udaddy, rdma_server and rdma_client break no rule.

## Limits

- Work is not checked: posting, polling and arming, the bytes of buffers, keys, and work in flight. So there are no rules yet about full queues, inline sizes, receives that are posted late, or memory that is used while work is in flight.
- What is left at exit is reported when the program returns from main or calls exit(3), not after `_exit(2)` or a signal.
- A child of fork(2) reports only what it made itself. A child of vfork(2), _Fork(3) or clone(2) is not checked.
- A call in a signal handler that interrupts a check of the same thread is not checked. `run` prints how many.
- An object that a provider's own function makes (`mlx5dv_create_qp`) is not known, and no rule applies to it.
- At most 4096 places of a run are recorded. More fail the run with status 125.

To generate this page again, run `tests/checks/page.py shim/layer/checks/rules.inc > docs/checks.md`. A test fails when the page is stale.
"""


def unquoted(text):
    """Returns the strings of a row of the table. Strings that follow each other are one."""
    fields, last = [], 0
    for found in re.finditer(r'"((?:[^"\\]|\\.)*)"', text):
        words = found.group(1).replace('\\"', '"')
        if fields and text[last:found.start()].strip() == "":
            fields[-1] += words
        else:
            fields.append(words)
        last = found.end()
    return fields


def rules(path):
    with open(path, encoding="utf-8") as table:
        rows = re.split(r"(?m)^RULE\(", table.read())[1:]
    for row in rows:
        fields = unquoted(row)
        if len(fields) != 5:
            sys.exit("a rule needs an id, a title, a meaning, a source and a remedy: " + row)
        yield fields


def page(path):
    text = HEAD + "## Rules\n\n"
    rows = list(rules(path))
    for group, name in GROUPS.items():
        text += "### %s\n\n| rule | mistake | meaning | remedy | source |\n|---|---|---|---|---|\n" % name
        for rule, title, meaning, source, mend in rows:
            if rule.split("-")[1] == group:
                text += "| %s | %s | %s | %s | %s |\n" % tuple(
                    field.replace("|", "\\|") for field in (rule, title, meaning, mend, source))
        text += "\n"
    return text + TAIL


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    made = page(sys.argv[1])
    if len(sys.argv) == 2:
        sys.stdout.write(made)
        return
    with open(sys.argv[2], encoding="utf-8") as there:
        if there.read() != made:
            sys.exit("docs/checks.md is stale; make it again: tests/checks/page.py "
                     "shim/layer/checks/rules.inc > docs/checks.md")


if __name__ == "__main__":
    main()
