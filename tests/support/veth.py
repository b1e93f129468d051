"""Two network namespaces that a veth pair connects. Works for root, and for an ordinary user whose
system permits user namespaces."""

import os
import subprocess

from emulated import Failure, Skip

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


class Namespace:
    """A network namespace that a sleeping process keeps. `enter` is put before a command that is to
    run in the namespace."""

    def __init__(self, inside=(), user=False):
        self.holder = subprocess.Popen(
            [*inside, "unshare", "-rn" if user else "-n", "sh", "-c", "echo ready $$; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ready = self.holder.stdout.readline().split()
        if ready[:1] != [b"ready"]:
            raise Skip("no network namespace (unshare)")
        self.pid = int(ready[1])
        user_options = ["--user", "--preserve-credentials"] if user or inside else []
        self.enter = ["nsenter", "--target=%d" % self.pid, *user_options, "--net", "--"]

    def close(self):
        self.holder.stdin.close()
        self.holder.wait(10)


class Link:
    """The left end is in this process's namespace, or in one of its own; `left_enter` and `enter`
    are put before the commands of the two ends."""

    def __init__(self, own_left=False):
        self.left = None
        self.left_enter = []
        if own_left:
            self.left = Namespace(user=os.geteuid() != 0)
            self.left_enter = self.left.enter
        self.right = Namespace(inside=self.left_enter if os.geteuid() != 0 else ())
        self.enter = self.right.enter
        run(*self.left_enter, "ip", "link", "add", "left", "type", "veth", "peer", "name", "right",
            "netns", str(self.right.pid))
        for enter, name, address in ((self.left_enter, "left", LEFT), (self.enter, "right", RIGHT)):
            run(*enter, "ip", "link", "set", "lo", "up")
            run(*enter, "ip", "addr", "add", address + "/24", "dev", name)
            run(*enter, "ip", "link", "set", name, "up")

    def close(self):
        run(*self.left_enter, "ip", "link", "delete", "left")  # deletes both ends at once
        self.right.close()
        if self.left is not None:
            self.left.close()
