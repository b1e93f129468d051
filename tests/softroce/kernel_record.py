"""Which contract tests have passed on the kernel's drivers. These tests do not use rdmaemu, so a
test passes again as long as its sources, the kernel and rdma-core are the same."""

import hashlib
import json
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.abspath(os.path.join(HERE, "..", ".."))
PATH = "tests/contract/kernel_record.json"
# Each test depends on these files and folders. The kernel's name covers the rest of the machine.
SHARED = ("tests/contract/harness.py", "tests/contract/support", "tests/softroce/contract_in_machine.py",
          "tools/softroce.d")
# Debian 13 has another name for librdmacm1.
PACKAGES = ("libibverbs1", "librdmacm1", "librdmacm1t64", "ibverbs-providers", "libgtest-dev")


def machine():
    """Returns the names of the kernel and of the packages that the tests run with. Fetches the
    kernel if it is not there."""
    prepared = subprocess.run([os.path.join(ROOT, "tools", "softroce"), "prepare"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)
    packages = subprocess.run(["dpkg-query", "-W", "-f", "${Package} ${Version}\n", *PACKAGES],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return prepared.stdout.splitlines()[-1:] + sorted(packages.stdout.splitlines())


def contents(root, path):
    """Returns (name, bytes) of a file, or of all files below a folder, in a fixed order."""
    full = os.path.join(root, path)
    if not os.path.isdir(full):
        with open(full, "rb") as file:
            return [(path, file.read())]
    names = sorted(name for name in os.listdir(full) if not name.startswith("__"))
    return [each for name in names for each in contents(root, os.path.join(path, name))]


class KernelRecord:
    """The record of the source tree `root`, on a machine."""

    def __init__(self, of_machine, root=ROOT):
        self.machine, self.root = of_machine, root
        self.shared = [each for name in SHARED for each in contents(root, name)]
        with open(os.path.join(root, PATH)) as text:
            self.passed = json.load(text)

    def digest(self, backend, file, kinds, rows):
        """Returns the digest of what decides the results of a file on a driver. `kinds` are those
        of the manifest, `rows` those of differences.toml."""
        total = hashlib.sha256()
        facts = json.dumps([self.machine, backend, kinds, rows])
        for name, content in [*self.shared, *contents(self.root, "tests/contract/%s.cc" % file),
                              *contents(self.root, "tests/contract/events/%s.json" % backend),
                              ("facts", facts.encode())]:
            total.update(("%s %d\n" % (name, len(content))).encode() + content)
        return total.hexdigest()[:16]

    def has(self, backend, file, digest):
        return self.passed.get(backend, {}).get(file) == digest

    def set(self, backend, digests):
        """Replaces the files of a driver."""
        self.passed[backend] = digests

    def write(self):
        with open(os.path.join(self.root, PATH), "w") as text:
            json.dump(self.passed, text, indent=1, sort_keys=True)
            text.write("\n")
