#!/usr/bin/env python3
"""Makes docs/checks.md out of the rules of the usage checks (shim/layer/checks/rules.inc) and the known
findings in Debian's programs (programs.toml).

page.py RULES PROGRAMS          prints the page
page.py RULES PROGRAMS PAGE     fails when PAGE is not what would be printed
"""

import re
import sys
import tomllib

TEXT = r'((?:\s*"(?:[^"\\]|\\.)*")+)'
RULE = re.compile(r"^RULE\((\w+)," + ",".join([TEXT] * 5) + r"\s*\)", re.MULTILINE)
GROUPS = {"CM": "Connections", "QP": "Queue pairs", "MR": "Memory regions",
          "CQ": "Completion queues", "THREAD": "Threads and processes", "EXIT": "At exit"}

HEAD = """# Usage checks

Find wrong uses of libibverbs and librdmacm in a program, on an emulated host or on a real device:

```sh
rdmaemu run --check -- ibv_devinfo
```

```sh skip="needs an RDMA device"
rdmaemu run --check=error --backend system --device rxe0 -- ./my_test
```

The first command checks the program and its children, and prints each mistake. The second command does so on the machine's own device. It fails with status 121 when the program succeeded and there was a finding. A finding looks like this:

```console
rdmaemu check: RDMAEMU-CM-005: rdma_destroy_id while the id has a queue pair
  call:   rdma_destroy_id at rping+0x2a8f
  detail: id->qp is qp1
  id2:    created by rdma_get_cm_event at rping+0x338e
  qp1:    created by rdma_create_qp at rping+0x41ed, rping+0x29dd, rping+0x3160
  source: rdma_destroy_id(3): users must free any associated QP with the rdma_cm_id before calling this routine
  mend:   Call rdma_destroy_qp(id) before rdma_destroy_id(id), or use rdma_destroy_ep.
```

- `addr2line -e rping 0x2a8f` prints the file and the line.
- `run` prints a finding once for each rule, place and process, within 50 ms. At the end, `run` prints how often each rule was broken.
- `--check-json FILE` also writes the findings as JSON lines, with the keys `rule`, `title`, `process`, `call`, `place`, `detail`, `objects`, `source`, `mend` and `times`.
- The checks see the program's own calls. Calls that librdmacm makes inside its functions do not count.
- A call with a destroyed object is not made. The call fails with EINVAL.
- Without `--check`, `run` loads nothing of this. With `--check`, the message rate falls by less than half (by a fifth as measured).

There are {count} rules:

"""

FOOT = """## What Debian's programs do wrong

These findings are in rdma-core 44 and perftest 4.5 on the emulator. A test runs the programs, and fails on any other finding. udaddy, rdma_server and rdma_client have none.

| program | rules | what it does |
| --- | --- | --- |
{programs}

`bazel run --config=opt //tests/checks:contract` runs the contract tests of one host under `--check` and prints the findings with the tests. All 621 tests pass there as without checks. Three kinds of tests have findings. Some break a rule on purpose, to check what the libraries answer. Some control both sides of a connection (CM-028). Some destroy objects in another order at their end (CQ-007, MR-011).

## Limits

- The checks see calls of the two libraries, and posting, polling and arming, also of extended queues. The checks do not see work that a provider posts by itself (mlx5dv), work queues (`ibv_create_wq`) and XRC. They do not count the posted work of a queue pair whose extended CQ has no `IBV_WC_EX_WITH_QP_NUM`.
- `RDMAEMU-MR-007` compares samples: the first 64 sends of a queue pair, and then every 16th send. It compares at most 128 bytes of each, spread over the message. It leaves out regions that a peer may write to, regions on demand, and systems that refuse process_vm_readv(2).
- `RDMAEMU-MR-008` watches the first eight bytes of a receive by a breakpoint of the processor. It watches fewer bytes when the buffer is not aligned to eight bytes. In a UD receive it watches the bytes after the GRH.
  - The rule sees accesses by code of the thread that posted the receive. It does not see those of the kernel (`write(2)` from the buffer).
  - The rule watches two receives at a time: of the first 16 of a queue pair, and then of every 256th.
  - The rule leaves out shared receive queues, regions that a peer may write to, regions on demand, and programs with a host inside their process.
  - A default Docker container refuses perf_event_open(2), and some virtual machines ignore breakpoints. There `run` prints that the rule was not checked.
- The opcode of a failed completion is found when it is read by `ibv_wc_read_opcode`. A read of `ibv_wc.opcode` is no call.
- `RDMAEMU-QP-028` is found at calls of functions. ibv_post_send, ibv_post_recv and ibv_poll_cq are inline, and read the destroyed object before the layer does. Such a program usually ends by SIGSEGV. Build it with -fsanitize=address to find the place.
- `RDMAEMU-CM-028` is also reported when the protocol makes the race impossible, because the passive side sends first.
- `RDMAEMU-CQ-003` is also reported when the wait has a time-out after which the program polls again.
- Work that a queue pair has posted is forgotten when the queue pair is disconnected or has a failed completion.
- `RDMAEMU-CM-001`, `CM-002`, `CM-010` and `CQ-004` are not reported once another thread of the program has acknowledged an event. They are reported when a thread acknowledges an event for the first time, after the destruction has begun.
- What is left at exit is reported when the program returns from main or calls exit(3), not after `_exit(2)` or a signal.
- A child of fork(2) reports only what it made itself. A child of vfork(2), _Fork(3) or clone(2) is not checked.
- A call in a signal handler that interrupts a check of the same thread is not checked. `run` prints how many.
- At most 4096 places of a run are recorded. More fail the run with status 125.

To generate this page again, run `tests/checks/page.py shim/layer/checks/rules.inc tests/checks/programs.toml > docs/checks.md`. A test fails when the page is stale.
"""


def text_of(literals):
    """Returns the text of adjacent C string literals."""
    return "".join(part.replace('\\"', '"') for part in re.findall(r'"((?:[^"\\]|\\.)*)"', literals))


def rules_in(table):
    """Returns (id, title, meaning, source, mend) of each rule."""
    rules = [tuple(map(text_of, found[1:])) for found in RULE.findall(table)]
    if len(rules) != len(re.findall(r"^RULE\(", table, re.MULTILINE)):
        raise ValueError("a rule cannot be read")
    return rules


def page(table, programs):
    rules = rules_in(table)
    parts = [HEAD.format(count=len(rules))]
    parts += ["- [%s](#%s)\n" % (title, title.lower().replace(" ", "-")) for title in GROUPS.values()]
    parts += ["- [What Debian's programs do wrong](#what-debians-programs-do-wrong)\n",
              "- [Limits](#limits)\n\n"]
    for group, title in GROUPS.items():
        parts.append("## %s\n\n| rule | mistake | meaning | source | mend |\n"
                     "| --- | --- | --- | --- | --- |\n" % title)
        for name, *texts in rules:
            if name.split("-")[1] == group:
                cells = [text.replace("|", "\\|") for text in texts]
                parts.append("| %s | %s |\n" % (name, " | ".join(cells)))
        parts.append("\n")
    rows = ["| %s | %s | %s |" % (", ".join("`%s`" % file for file in row["files"]),
                                  ", ".join("RDMAEMU-" + rule for rule in row["rules"]),
                                  row["what"]) for row in programs]
    parts.append(FOOT.format(programs="\n".join(rows)))
    return "".join(parts)


def main():
    with open(sys.argv[1]) as table, open(sys.argv[2], "rb") as programs:
        made = page(table.read(), tomllib.load(programs)["program"])
    if len(sys.argv) < 4:
        sys.stdout.write(made)
        return 0
    with open(sys.argv[3]) as there:
        if there.read() == made:
            return 0
    print("%s is not made from %s; run: tests/checks/page.py shim/layer/checks/rules.inc "
          "tests/checks/programs.toml > docs/checks.md" % (sys.argv[3], sys.argv[1]))
    return 1


if __name__ == "__main__":
    sys.exit(main())
