"""The emulator and the kernel's rdma_rxe as peers on one link. Boots the virtual machine, in which
in_machine.py runs every case, and collects the results.

usage: real_peer.py [CASE...]
"""

import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Failure  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
SOFTROCE = os.path.abspath("tools/softroce")
LIMIT_S = int(os.environ.get("TEST_TIMEOUT", "3600")) - 60  # before Bazel ends us without a word


def main():
    results = tempfile.mkdtemp(prefix="real-peer-", dir="/tmp")
    xml = os.path.join(results, "test.xml")
    command = [SOFTROCE, "run", "-t", str(LIMIT_S), "-o", results, "--",
               "env", "XML_OUTPUT_FILE=" + xml, "RDMA_TEST_BINARY=" + emulated.RDMAEMU,
               "RDMA_TEST_RESULTS=" + results,
               "bash", os.path.join(HERE, "..", "support", "python_test.sh"),
               os.path.join(HERE, "in_machine.py"), *sys.argv[1:]]
    try:
        status = subprocess.run(command, stdin=subprocess.DEVNULL).returncode
        if os.path.exists(xml):
            wanted = os.environ.get("XML_OUTPUT_FILE")
            if wanted:
                shutil.copyfile(xml, wanted)
            return status

        def machine():
            raise Failure("the virtual machine ended with status %d and left no results; what it"
                          " said is in the test's log" % status)
        return emulated.run_cases("softroce.real_peer", [("machine", machine)])
    finally:
        shutil.rmtree(results, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
