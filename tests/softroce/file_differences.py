"""Compares a listing of file_tree.py with the recorded one of the kernel's rdma_rxe,
kernel_files.json. To record it anew, in a machine of tools/softroce:

  tools/softroce run -o DIRECTORY -- sh -c 'python3 tests/softroce/file_tree.py >DIRECTORY/listing'
  tests/softroce/file_differences.py DIRECTORY/listing >tests/softroce/kernel_files.json
"""

import json
import os
import re
import sys

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernel_files.json")

# (path, the form that both contents have): values that depend on the machine or on what ran before.
GROUP = "[0-9a-f]{4}"
FORMS = (
    (r".*/(node_guid|sys_image_guid)", r"%s(:%s){3}\n" % (GROUP, GROUP)),
    (r".*/gids/[012]", r"%s(:%s){7}\n" % (GROUP, GROUP)),
    (r".*/(parent|gid_attrs/ndevs/[012])", r"[a-z0-9]+\n"),
    (r".*/(hw_counters|cm_[rt]x_[a-z]+)/[a-z_]+", r"\d+\n"),
    (r".*/ports/1/rate", r"[0-9.]+ Gb/sec \(1X [A-Z0-9]+\)\n"),  # of the interface
    (r".*/(node_desc)", r".+\n"),
    (r".*/dev", r"\d+:\d+\n"),
    (r"/dev/infiniband/.*", r"\d+:\d+"),
)

# (path, reason): files of the kernel that the emulator does not have. docs/filesystem.md lists them.
MISSING = (
    (r".*/power(/.*)?", "power management of a device without power"),
    (r".*/cm_(tx_retries|rx_duplicates)(/.*)?", "the emulator counts messages only"),
)


def form_of(path):
    for pattern, form in FORMS:
        if re.fullmatch(pattern, path):
            return form
    return None


def reason_for_absence(path):
    for pattern, reason in MISSING:
        if re.fullmatch(pattern, path):
            return reason
    return None


def recorded():
    with open(RECORDED) as text:
        return json.load(text)


def differences(kernel, other):
    """Returns a line for each difference that neither table explains."""
    lines = []
    for path in sorted(set(kernel) | set(other)):
        if path not in other:
            if not reason_for_absence(path):
                lines.append("%s is missing" % path)
            continue
        if path not in kernel:
            lines.append("%s is not a file of rdma_rxe" % path)
            continue
        (kind, mode, contents), (own_kind, own_mode, own) = kernel[path], other[path]
        if (kind, mode) != (own_kind, own_mode):
            lines.append("%s: %s %s, rdma_rxe: %s %s" % (path, own_kind, own_mode, kind, mode))
        form = form_of(path)
        same = re.fullmatch(form, own) and re.fullmatch(form, contents) if form else own == contents
        if not same:
            lines.append("%s: %r, rdma_rxe: %r" % (path, own, contents))
    return lines


if __name__ == "__main__":
    with open(sys.argv[1]) as listing:
        json.dump(json.load(listing), sys.stdout, indent=1, sort_keys=True)
    print()
