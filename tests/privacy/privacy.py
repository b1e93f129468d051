"""Access to a host: other users at its socket, strangers on the network.

usage: privacy.py FORGED_PACKETS_BINARY
"""

import os
import socket
import stat
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import RDMAEMU, Emulator, Failure, Skip, free_addresses  # noqa: E402

NOBODY = 65534
HOST_STATUS = struct.pack("II", 3, 0)  # CallOp::kHostStatus, no body (emulator/abi/calls.h)
REPLY_HEADER = struct.Struct("iIII")


def start_host(emulator):
    emulator.start_host("private", ["--address", free_addresses(1)[0]])
    return os.path.join(emulator.directory, "private.sock")


def ask(path):
    """Returns the result of a connection to the socket: "answered", "closed" or an errno's name."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(20)
        try:
            client.connect(path)
            client.send(HOST_STATUS)
            reply = client.recv(1 << 18)
        except (PermissionError, BrokenPipeError, ConnectionResetError) as error:
            return type(error).__name__
        if not reply:
            return "closed"
        error, size, _, _ = REPLY_HEADER.unpack_from(reply)
        return "answered" if error == 0 and size > 0 else "errno %d" % error


def ask_as(uid, path):
    """Returns the same from a child process that has become another user without groups."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            said = ask(path)
        except BaseException as error:  # the parent must get every error
            said = "could not try: %s" % error
        os.write(writer, said.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


def need_another_user():
    if os.getuid() != 0:
        raise Skip("only root can become another user; this is uid %d" % os.getuid())
    with open("/proc/self/uid_map") as lines:
        if not any(int(first) <= NOBODY < int(first) + int(count)
                   for first, _, count in (line.split() for line in lines)):
            raise Skip("uid %d is not in this user namespace" % NOBODY)


def permissions_keep_others_out():
    with Emulator() as emulator:
        path = start_host(emulator)
        mode = stat.S_IMODE(os.stat(emulator.directory).st_mode)
        if mode & 0o077:
            raise Failure("the hosts' directory has mode %o" % mode)
        if ask(path) != "answered":
            raise Failure("the host does not answer its own user: " + ask(path))
        need_another_user()
        said = ask_as(NOBODY, path)
        if said != "PermissionError":
            raise Failure("uid %d: %s" % (NOBODY, said))


def credentials_keep_others_out():
    """Directory and socket are open to all users. The host itself checks the peer's credentials."""
    need_another_user()
    with Emulator() as emulator:
        path = start_host(emulator)
        os.chmod(emulator.directory, 0o777)
        os.chmod(path, 0o777)
        try:
            said = ask_as(NOBODY, path)
            if said not in ("closed", "BrokenPipeError", "ConnectionResetError"):
                raise Failure("uid %d: %s" % (NOBODY, said))
            if ask(path) != "answered":
                raise Failure("the host no longer answers its own user")
        finally:
            os.chmod(emulator.directory, 0o700)


def a_directory_of_others_is_refused():
    """No user can put his own socket where programs look for their host."""
    with Emulator() as emulator:
        os.chmod(emulator.directory, 0o777)
        result = emulator.rdmaemu("run", "--host", "trap", "--", "true")
        os.chmod(emulator.directory, 0o700)
        if result.returncode == 0:
            raise Failure("a directory that all can write to was taken\n" + result.stderr)


def forged_packets(binary):
    with Emulator() as emulator:
        local, peer, stranger = free_addresses(3)
        test = emulator.start("victim", local, [binary], env={
            "RDMA_TEST_LOCAL": local, "RDMA_TEST_PEER": peer, "RDMA_TEST_STRANGER": stranger,
            "RDMA_TEST_RDMAEMU": RDMAEMU})
        status = test.wait(120)
        print(test.output)
        if status != 0:
            raise Failure("status %s\n%s" % (status, test.describe()))


def main():
    binary = os.path.abspath(sys.argv[1])
    return emulated.run_cases("privacy", [
        ("permissions_keep_others_out", permissions_keep_others_out),
        ("credentials_keep_others_out", credentials_keep_others_out),
        ("a_directory_of_others_is_refused", a_directory_of_others_is_refused),
        ("forged_packets", lambda: forged_packets(binary)),
    ])


if __name__ == "__main__":
    sys.exit(main())
