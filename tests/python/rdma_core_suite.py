"""Runs rdma-core's own tests of pyverbs, from Debian's python3-pyverbs, on an emulated host. No
test fails. The tests that no device of the emulator supports skip themselves."""

import glob
import gzip
import os
import re
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, Skip, free_addresses  # noqa: E402

SUITE = "/usr/share/doc/rdma-core/tests"
PYTHON = "/usr/bin/python3"  # Debian's pyverbs is installed for this interpreter
LIMIT_S = 300

# The suite reads facts of the device from the kernel, where the emulator has no files and no netlink
# socket: the network interface (rdma-core 44: sysfs; 56: rdma(8)) and, since 56, the P_Key at index
# 0. PREPARED gives the device the address ADDRESS of the environment, if any, and rxe's P_Key. One
# test fails as on rdma_rxe of Linux 6.1: libibverbs accepts ATOMIC WRITE for the QP, and the request
# completes with an error (extended_test of tests/contract).
# Warnings are off because Python 3.12 prints one amid the results when a process with threads forks.
PREPARED = """
import os, sys, unittest
sys.path.insert(0, "tests")
sys.path.insert(0, ".")
from args_parser import parser
parser.parse_args()
import tests
from tests import base, utils, test_qpex, test_rdmacm
def add(self, device, port, index):
    address = os.environ.get("ADDRESS")
    self.args.append([device, port, index, address, "00:00:00:00:00:01" if address else None])
base.RDMATestCase._get_ip_mac = add
utils.get_pkey_from_kernel = lambda device, port=1, index=0: 0xffff
case, name = test_qpex.QpExTestCase, "test_qp_ex_rc_atomic_write"
if hasattr(case, name):
    setattr(case, name, unittest.expectedFailure(getattr(case, name)))
unittest.main(module=%s, warnings="ignore")
"""


def run(least, module, with_address):
    """Runs a module of a copy of the suite. Fails unless at least `least` tests passed and none
    failed."""
    if not os.path.exists(SUITE):
        raise Skip("python3-pyverbs is not installed, or without its files in /usr/share/doc")
    with tempfile.TemporaryDirectory(prefix="rdmaemu-suite-", dir="/tmp") as directory:
        tests = os.path.join(directory, "tests")
        shutil.copytree(SUITE, tests)
        for path in glob.glob(tests + "/*.gz"):
            with gzip.open(path) as packed, open(path[:-len(".gz")], "wb") as file:
                shutil.copyfileobj(packed, file)
        with Emulator() as emulator:
            address = free_addresses(1)[0]
            program = emulator.start("a", address, ["env", "--chdir=" + directory, PYTHON, "-c",
                                                    PREPARED % module, "--dev", "rxe0", "-v"],
                                     env={"ADDRESS": address} if with_address else None)
            status = program.wait(LIMIT_S)
            passed = len(re.findall(r"\.\.\. ok$", program.output, re.MULTILINE))
            if status != 0 or not re.search(r"^OK\b", program.output, re.MULTILINE) or passed < least:
                raise Failure("%d passed, at least %d were expected\n%s" %
                              (passed, least, program.describe()))


def verbs_pass():
    run(80, "tests", with_address=False)


def rdma_cm_passes():
    run(10, "test_rdmacm", with_address=True)


if __name__ == "__main__":
    sys.exit(emulated.run_cases("rdma_core_suite", [(case.__name__, case) for case in (
        verbs_pass, rdma_cm_passes)]))
