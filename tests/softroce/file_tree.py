"""Prints what a program finds of RDMA devices in files, as a JSON object from path to
[kind, mode, contents]. Contents are the text of a file, the target of a link, the number of a
character device, or an errno's name. The contents of a directory are its number of rows, the files
of a table (gids/0, gids/1, ...). Only the first few rows are read.

usage: file_tree.py [PATH...]; without one, PATHS
"""

import errno
import json
import os
import stat
import sys

PATHS = (
    "/sys/class/infiniband/rxe0",
    "/sys/class/infiniband_verbs", "/sys/class/infiniband_verbs/uverbs0",
    "/sys/class/infiniband_mad", "/sys/class/infiniband_mad/umad0",
    "/sys/class/infiniband_mad/issm0",
    "/sys/class/infiniband_cm",
    "/sys/class/misc/rdma_cm",
    "/dev/infiniband",
)
MOST_BYTES = 4096
ROWS = 3  # read of each table


def contents(path, status):
    try:
        if stat.S_ISLNK(status.st_mode):
            return "link", os.readlink(path)
        if stat.S_ISCHR(status.st_mode):
            return "device", "%d:%d" % (os.major(status.st_rdev), os.minor(status.st_rdev))
        if stat.S_ISDIR(status.st_mode):
            return "directory", "%d rows" % sum(name.isdecimal() for name in os.listdir(path))
        if not status.st_mode & 0o444:
            return "file", ""
        with open(path, "rb") as file:
            return "file", file.read(MOST_BYTES).decode(errors="replace")
    except OSError as error:
        return "file", errno.errorcode.get(error.errno, str(error.errno))


def walk(path, found):
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    kind, text = contents(path, status)
    found[path] = [kind, "%04o" % stat.S_IMODE(status.st_mode), text]
    if kind == "directory":
        for name in sorted(os.listdir(path)):
            if name.isdecimal() and int(name) >= ROWS:
                continue
            walk(os.path.join(path, name), found)


def main():
    found = {}
    for path in sys.argv[1:] or PATHS:
        walk(path, found)
        if os.path.islink(path):
            walk(os.path.realpath(path), found)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
