"""rdmaemu for Python: RDMA devices, faults and time inside a test's own process.

    import rdmaemu                    # before pyverbs: rdmaemu's libibverbs must be loaded first

    with rdmaemu.open(seed=7) as host:
        with host.fault(at="cm.req", reject=28) as fault:
            assert client.connect() == "rejected"
        assert fault.fired == 1

Start Python with `python3 -m rdmaemu`, so that select, poll and sleep run the host as well:

    python3 -m rdmaemu pytest tests/
    python3 -m rdmaemu script.py

The manual is docs/python.md (below a prefix: share/doc/rdmaemu/python.md). The functions are those of
rdmaemu/rdmaemu.h and may be called by any thread. A function that the library refuses raises Error.
"""

from rdmaemu._hosts import Host, Machine, attach, open
from rdmaemu._library import Backend, Error, backend, is_preloaded, library_directory, take_over
from rdmaemu._matrix import (FaultMatrix, FaultOutcome, calls_fail, cm_messages_lost,
                             completions_fail, for_each_fault, points_at)
from rdmaemu._options import Device, Options
from rdmaemu._rules import Fault, NeverFired, Rule, rule_text
from rdmaemu._sweep import sweep_points

__all__ = [
    "Backend", "Device", "Error", "Fault", "FaultMatrix", "FaultOutcome", "Host", "Machine",
    "NeverFired", "Options", "Rule", "attach", "backend", "calls_fail", "cm_messages_lost",
    "completions_fail", "for_each_fault", "is_preloaded", "library_directory", "open", "points_at",
    "rule_text", "sweep_points",
]

if backend() is not Backend.SYSTEM:
    take_over()
del take_over

for _name in __all__:  # users import these names from rdmaemu, so tracebacks say rdmaemu.Error
    globals()[_name].__module__ = __name__
