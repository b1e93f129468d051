#!/usr/bin/env python3
"""Makes docs/abi.md out of shim/abi_status.txt, which marks every exported name.

abi_table.py STATUS          prints the page
abi_table.py STATUS PAGE     fails when PAGE is not what would be printed
"""
import sys

STATES = {
    "complete": "does what its manual page says",
    "no-op": "succeeds because there is nothing to do",
    "unsupported": "fails with EOPNOTSUPP",
}
LIBRARIES = (("libibverbs.so.1", "IBVERBS_"), ("librdmacm.so.1", "RDMACM_"))

HEAD = """# What the libraries export

Look up here whether rdmaemu implements a function. The tables list every name and version of
rdma-core 44 to 65. The last section lists the operations that have no name of their own.

To generate this page again, run `tools/abi/abi_table.py shim/abi_status.txt > docs/abi.md`. A test
fails when the page is stale.

CONTENTS
- [Operations without a name](#operations-without-a-name)

A name with several numbers (`@@IBVERBS_PRIVATE_34,57`) is one function in several version nodes.

Each name has one of three states:

"""

# Inline functions of verbs.h call these through the context, so they have no exported name.
OPERATIONS = """
## Operations without a name

Inline functions of `verbs.h` call these operations through slots of the context.

Present:

- `poll_cq`, `req_notify_cq`, `post_send`, `post_recv`, `post_srq_recv`
- `alloc_mw`, `bind_mw`, `dealloc_mw`, `query_port`, `query_device_ex`
- `query_rt_values` (EOPNOTSUPP without `hca_core_clock`)
- `create_cq_ex` (standard fields, and timestamps if the profile has `hca_core_clock`)
- `create_qp_ex` (PD and `send_ops_flags`, with the `ibv_wr_*` builders of RC, UC and UD)

These fail with EOPNOTSUPP:

- XRC domains and `open_qp`, `create_srq_ex` other than basic, `get_srq_num`
- thread and parent domains, `modify_cq`, `advise_mr`, null MRs
- device memory, counters, flows and flow actions, work queues and indirection tables
- rate limits, tag matching
"""


def read(path):
    rows = []
    with open(path, encoding="utf-8") as table:
        for number, line in enumerate(table, 1):
            if line.startswith("#"):
                continue
            words = line.rstrip("\n").split(" ", 2)
            if len(words) < 2 or "@" not in words[0] or words[1] not in STATES:
                sys.exit(f"{path}:{number}: not 'NAME@VERSION STATE [NOTE]' with a state of "
                         f"{', '.join(STATES)}")
            rows.append((words[0], words[1], words[2] if len(words) > 2 else ""))
    names = [row[0] for row in rows]
    if len(names) != len(set(names)):
        sys.exit(f"{path}: a name stands there twice")
    return rows


def anchor(heading):
    """Returns the anchor that a heading gets on GitHub and GitLab."""
    return "".join(c for c in heading.lower() if c.isalnum() or c in " -_").replace(" ", "-")


def page(rows):
    states = "".join(f"- **{state}**: {meaning}.\n" for state, meaning in STATES.items())
    contents, sections = [], ""
    for library, prefix in LIBRARIES:
        mine = sorted(row for row in rows if row[0].rsplit("@", 1)[1].startswith(prefix))
        counts = ", ".join(f"{sum(row[1] == state for row in mine)} {state}" for state in STATES)
        heading = f"{library}: {len(mine)} names ({counts})"
        contents.append(f"- [{heading}](#{anchor(heading)})")
        sections += f"\n## {heading}\n\n| name | state | |\n|---|---|---|\n"
        sections += "".join(f"| `{name}` | {state} | {note} |\n" for name, state, note in mine)
    text = HEAD.replace("CONTENTS", "\n".join(contents)) + states + sections
    return text + OPERATIONS


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    made = page(read(sys.argv[1]))
    if len(sys.argv) == 2:
        sys.stdout.write(made)
        return
    with open(sys.argv[2], encoding="utf-8") as there:
        if there.read() != made:
            sys.exit(f"{sys.argv[2]} is stale: tools/abi/abi_table.py {sys.argv[1]} > docs/abi.md")


main()
