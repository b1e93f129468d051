"""librdmaemu-files.so redirects file calls to the tree of a server, and shows the program no path of
that tree. A server in this test stands for that of `rdmaemu run`.

usage: files_test.py LIBRARY
"""

import os
import socket
import struct
import subprocess
import sys
import tempfile
import threading

PROGRAM = r"""
import ctypes, glob, os, stat
D = "/sys/class/infiniband"
assert os.listdir(D) == ["rxe0"], os.listdir(D)
assert os.readlink(D + "/rxe0") == "../../devices/virtual/infiniband/rxe0"
assert stat.S_ISLNK(os.lstat(D + "/rxe0").st_mode)
assert open(D + "/rxe0/state").read() == "4: ACTIVE\n"
assert open("/sys/../sys//class/./infiniband/rxe0/state").read() == "4: ACTIVE\n"
assert os.stat(D + "/rxe0/state").st_size == 10
assert os.listdir(D + "/..") == os.listdir("/sys/class")
os.chdir("/sys/class")
assert open("infiniband/rxe0/state").read() == "4: ACTIVE\n"
os.chdir("/")
assert open("sys/class/infiniband/rxe0/state").read() == "4: ACTIVE\n"
libc = ctypes.CDLL(None)
libc.realpath.restype = ctypes.c_char_p
V = b"/sys/devices/virtual/infiniband/rxe0"
assert libc.realpath(b"/sys/class/infiniband/rxe0", None) == V
class Glob(ctypes.Structure):
    _fields_ = [("count", ctypes.c_size_t), ("paths", ctypes.POINTER(ctypes.c_char_p)),
                ("room", ctypes.c_char * 256)]
found = Glob()
assert libc.glob(b"/sys/class/infiniband/*", 0, None, ctypes.byref(found)) == 0
assert found.count == 1 and found.paths[0] == b"/sys/class/infiniband/rxe0", found.paths[0]
node = os.stat("/dev/infiniband/uverbs0")
assert stat.S_ISCHR(node.st_mode) and node.st_rdev == os.makedev(231, 192)
assert os.access("/dev/infiniband/uverbs0", os.R_OK | os.W_OK)
for path, flags in (("/dev/infiniband/uverbs0", os.O_RDONLY), (D + "/rxe0/state", os.O_WRONLY)):
    try:
        os.open(path, flags)
        assert False, path
    except PermissionError:
        pass
fd = os.open(D, os.O_RDONLY)
assert os.read(os.open("rxe0/state", os.O_RDONLY, dir_fd=fd), 99) == b"4: ACTIVE\n"
assert not os.path.exists(D + "/none") and os.path.exists("/proc/self")
assert os.system("grep -q ACTIVE /sys/class/infiniband/rxe0/state") == 0
print("good")
"""


def serve(listener, tree):
    while True:
        client, _ = listener.accept()
        path = client.recv(4096).decode()
        is_device = path.startswith("/dev/infiniband/uverbs")
        is_directory = os.path.isdir(tree + path)
        client.send(struct.pack("iiIIIIII", 0, 0, is_device, 0o666 if is_device else 0o444,
                                231, 192, is_directory, 0))
        client.close()


def main(library):
    with tempfile.TemporaryDirectory(dir="/tmp") as base:
        real = base + "/tree/sys/devices/virtual/infiniband/rxe0"
        for directory in (real, base + "/tree/sys/class/infiniband", base + "/tree/dev/infiniband"):
            os.makedirs(directory)
        with open(real + "/state", "w") as file:
            file.write("4: ACTIVE\n")
        os.symlink("../../devices/virtual/infiniband/rxe0",
                   base + "/tree/sys/class/infiniband/rxe0")
        with open(base + "/tree/dev/infiniband/uverbs0", "w"):
            pass
        os.chmod(base + "/tree/dev/infiniband/uverbs0", 0o666)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(base + "/socket")
        listener.listen(64)
        threading.Thread(target=serve, args=(listener, base + "/tree"), daemon=True).start()
        ended = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True,
                               env=dict(os.environ, LD_PRELOAD=os.path.abspath(library),
                                        RDMAEMU_FILES=base), timeout=60)
        if ended.returncode != 0 or ended.stdout != "good\n":
            sys.exit(ended.stdout + ended.stderr)


if __name__ == "__main__":
    main(sys.argv[1])
