"""Two network namespaces connected by a veth pair, with one host in each. The packets use a real
link.

The test enters a user namespace of its own, which works for an ordinary user as well. It creates
two network namespaces inside and runs everything there.
"""

import json
import os
import re
import socket
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure, Skip  # noqa: E402

LEFT, RIGHT = "10.250.1.1", "10.250.1.2"


NOT_HERE = ("not permitted", "not supported", "Unknown device type", "No such file")


def run(*argv):
    done = subprocess.run(argv, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=30)
    if done.returncode != 0:
        said = "%s: %s" % (" ".join(argv), done.stdout.strip())
        if any(text in said for text in NOT_HERE):
            raise Skip("this machine does not let us: " + said)
        raise Failure(said)


class Link:
    """This process's namespace is the left end. A sleeping process keeps the right one."""

    def __init__(self):
        self.holder = subprocess.Popen(
            ["unshare", "-n", "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.holder.stdout.readline().strip() != b"ready":
            raise Skip("no second network namespace (unshare -n)")
        self.enter = ["nsenter", "--net=/proc/%d/ns/net" % self.holder.pid, "--"]
        run("ip", "link", "add", "left", "type", "veth", "peer", "name", "right",
            "netns", str(self.holder.pid))
        run("ip", "link", "set", "lo", "up")
        run("ip", "addr", "add", LEFT + "/24", "dev", "left")
        run("ip", "link", "set", "left", "up")
        run(*self.enter, "ip", "link", "set", "lo", "up")
        run(*self.enter, "ip", "addr", "add", RIGHT + "/24", "dev", "right")
        run(*self.enter, "ip", "link", "set", "right", "up")

    def close(self):
        run("ip", "link", "delete", "left")  # deletes both ends at once
        self.holder.stdin.close()
        self.holder.wait(10)


def pair(server, client, signs, client_signs):
    """Runs a server on the left host and a client on the right one."""
    emulated.need(server[0])
    link = Link()
    try:
        with Emulator() as emulator:
            left = emulator.start_listening("left", LEFT, server)
            right = emulator.start("right", RIGHT, client, prefix=link.enter)
            status = right.wait(90)
            both = "\n" + right.describe() + "\n" + left.describe()
            if status != 0 or left.wait(30) != 0:
                raise Failure("ended badly" + both)
            for sign in signs:
                if sign not in left.output:
                    raise Failure("no '%s' from the server%s" % (sign, both))
            for sign in client_signs:
                if sign not in right.output:
                    raise Failure("no '%s' from the client%s" % (sign, both))
    finally:
        link.close()


def rping():
    base = ["rping", "-a", LEFT, "-p", "18950", "-v", "-V", "-C", "20", "-S", "4096"]
    pair([*base, "-s"], [*base, "-c"], ["DISCONNECT EVENT"], ["ping data: rdma-ping-19"])


def ib_write_bw():
    base = ["ib_write_bw", "-d", "rxe0", "-F", "-R", "-p", "18951", "-s", "65536", "-n", "100"]
    pair(base, [*base, LEFT], [], [" 65536      100"])


def udp_sockets():
    """Returns the local addresses of this namespace's sockets on RoCE's port, from /proc/net."""
    found = set()
    for table in ("/proc/net/udp", "/proc/net/udp6"):
        with open(table) as lines:
            for line in lines:
                address, _, port = line.split()[1].rpartition(":")
                if port == "%04X" % emulated.ROCE_PORT:
                    found.add(address)
    return found


def hexadecimal(address):
    return "".join("%02X" % int(part) for part in reversed(address.split(".")))


def loopback_only_unless_told():
    """A host without --address binds no address that other machines can reach, although this
    machine has one. With the option it does."""
    link = Link()
    try:
        with Emulator() as emulator:
            emulator.start_host("private", [])
            bound = udp_sockets()
            loopback = {hexadecimal("127.0.0.1"), "00000000000000000000000001000000"}
            if hexadecimal("127.0.0.1") not in bound or not bound <= loopback:
                raise Failure("a default host has sockets at %s" % sorted(bound))
            emulator.rdmaemu("stop", "private")
            emulator.start_host("public", ["--address", LEFT])
            bound = udp_sockets()
            if bound != {hexadecimal(LEFT)}:
                raise Failure("a host at %s has sockets at %s" % (LEFT, sorted(bound)))
    finally:
        link.close()


def multicast():
    """Tests a group over the link in both directions. Each end has a receiver, and one end has the
    sender. mckey prints its output when it ends. The hosts' traces show when the receivers are
    attached."""
    emulated.need("mckey")
    group = "239.250.1.1"
    ends = (("left", LEFT, ()), ("right", RIGHT, None))
    link = Link()
    try:
        for sender in (0, 1):
            with Emulator() as emulator:
                traces = [os.path.join(emulator.directory, name + ".trace") for name, _, _ in ends]

                def start(end, *more):
                    name, address, prefix = ends[end]
                    argv = ["mckey", "-m", group, "-b", address, "-C", "10", *more]
                    return emulator.start(name, address, argv, ["--trace", traces[end]],
                                          prefix=link.enter if prefix is None else prefix)
                receivers = [start(end) for end in (0, 1)]
                emulated.wait_for_calls(traces, "attach_mcast", 2)
                programs = [start(sender, "-s"), *receivers]
                for program in programs:
                    if program.wait(60) != 0:
                        raise Failure("\n".join(one.describe() for one in programs))
                    program.expect(r"^data transfers complete$", r"^return status 0$")
    finally:
        link.close()


def multicast_of_loopback_only():
    """A host on loopback alone whose program has joined a group receives no datagram of the group
    from a link. This holds even if another program of the machine has joined the group there."""
    emulated.need("mckey")
    group = "239.250.1.2"
    link = Link()
    try:
        with Emulator() as emulator, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as member:
            member.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            member.bind((group, emulated.ROCE_PORT))
            member.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                              socket.inet_aton(group) + socket.inet_aton(LEFT))
            member.settimeout(10)
            trace = os.path.join(emulator.directory, "private.trace")
            emulator.start("private", "127.0.0.1", ["mckey", "-m", group, "-b", "127.0.0.1"],
                           ["--trace", trace])
            emulated.wait_for_calls([trace], "attach_mcast", 1)
            run(*link.enter, sys.executable, "-c", SEND_TO_GROUP, group, RIGHT,
                str(emulated.ROCE_PORT))
            if member.recv(100) != b"from outside":
                raise Failure("the packet did not come by the link")
            counters = emulator.host("private")["counters"]
            if counters["datagrams_received"] != 0:
                raise Failure("a private host took a packet from the link: %s" % counters)
    finally:
        link.close()


SEND_TO_GROUP = """
import socket, sys
group, own, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
    sender.sendto(b"from outside", (group, port))
"""

def commands_of_the_compose_file():
    """The services of docs/examples/ci/compose.yaml with this link's addresses. Each side has a
    registry of its own, as each container has."""
    emulated.need("rdma_server")
    with open("docs/examples/ci/compose.yaml") as file:
        text = file.read().replace("10.77.0.2", LEFT).replace("10.77.0.3", RIGHT)
    server, client = (each.split() for each in re.findall(r"^    command: (.*)$", text, re.MULTILINE))
    check = json.loads(re.search(r"test: (\[.*\])", text).group(1))[1:]
    link = Link()
    try:
        with Emulator() as left, Emulator() as right:
            for each in left, right:
                each.env["PATH"] = os.path.dirname(emulated.RDMAEMU) + ":" + each.env["PATH"]
            serving = left.start_outside(server)
            healthy = False
            for _ in range(30):  # Docker repeats the check, too
                if left.start_outside(check).wait(60) == 0:
                    healthy = True
                    break
            if not healthy:
                raise Failure("the server is not healthy\n" + serving.describe())
            asking = right.start_outside([*link.enter, *client], right.env)
            if asking.wait(90) != 0 or serving.wait(30) != 0:
                raise Failure("ended badly\n%s\n%s" % (asking.describe(), serving.describe()))
    finally:
        link.close()


CASES = [("rping", rping), ("commands_of_the_compose_file", commands_of_the_compose_file),
         ("multicast", multicast),
         ("multicast_of_loopback_only", multicast_of_loopback_only), ("ib_write_bw", ib_write_bw),
         ("loopback_only_unless_told", loopback_only_unless_told)]


def main():
    if os.environ.get("RDMA_TEST_INSIDE") != "1":
        os.environ["RDMA_TEST_INSIDE"] = "1"
        probe = subprocess.run(["unshare", "-rn", "true"], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
        if probe.returncode == 0:
            os.execvp("unshare", ["unshare", "-rn", sys.executable, *sys.argv])
        reason = "no user and network namespaces here: " + probe.stdout.strip()

        def refused():
            raise Skip(reason)
        return emulated.run_cases("netns", [(name, refused) for name, _ in CASES])
    return emulated.run_cases("netns", CASES)


if __name__ == "__main__":
    sys.exit(main())
