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
import perftest  # noqa: E402
from emulated import Emulator, Failure, Skip  # noqa: E402
from veth import LEFT, RIGHT, Link, run  # noqa: E402


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
    perftest.without_race(lambda: pair(base, [*base, LEFT], [], [" 65536      100"]))


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


def longest_frames(wire):
    """Transfers 1 MiB messages between two hosts that share only the link. Returns the lengths of
    the longest frames that each end has sent, in bytes. A frame longer than the link's MTU is a
    burst (UDP_SEGMENT)."""
    emulated.need("ib_write_bw")
    eth_p_all, packet_outgoing = 3, 4
    longest = {True: 0, False: 0}  # by whether this end sent it
    link = Link()
    try:
        with Emulator() as left, Emulator(prefix=link.enter) as right, \
                socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(eth_p_all)) as frames:
            frames.bind(("left", eth_p_all))
            frames.settimeout(0.2)
            base = ["ib_write_bw", "-d", "rxe0", "-F", "-R", "-p", "18953", "-s", "1048576", "-n", "20"]
            options = ["--wire", wire]
            server = left.start_listening("left", LEFT, base, options)
            client = right.start("right", RIGHT, [*base, LEFT], options)
            while client.process.poll() is None or server.process.poll() is None:
                try:
                    frame, address = frames.recvfrom(65536)
                except TimeoutError:
                    continue
                sent = address[2] == packet_outgoing
                longest[sent] = max(longest[sent], len(frame))
            if client.wait(60) != 0 or server.wait(30) != 0:
                raise Failure("ended badly\n%s\n%s" % (client.describe(), server.describe()))
            client.expect(r"^ 1048576 +20 ")
    finally:
        link.close()
    return longest[True], longest[False]


MTU = 1500


def bursts_between_emulators():
    """An emulator sends bursts over a link to another emulator, as soon as it knows the peer."""
    from_left, from_right = perftest.without_race(lambda: longest_frames("shared"))
    if from_right <= MTU:
        raise Failure("the data was sent in single packets of at most %d bytes" % from_right)


def no_bursts_on_request():
    """With --wire udp-single each packet is a frame of its own."""
    sent = perftest.without_race(lambda: longest_frames("udp-single"))
    if max(sent) > MTU:
        raise Failure("frames of %d bytes" % max(sent))


CASES = [("rping", rping), ("bursts_between_emulators", bursts_between_emulators),
         ("no_bursts_on_request", no_bursts_on_request), ("commands_of_the_compose_file", commands_of_the_compose_file),
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
