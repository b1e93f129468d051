"""An independent reader judges the bytes: tshark must find in every packet what was put in."""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Failure  # noqa: E402

DUMP = os.path.abspath("tests/wire/dump_packets")
PACKETS = 2 * (37 + 9)  # every opcode and every CM message, over IPv4 and IPv6


def number(text):
    """tshark prints numbers as decimal or 0x..., booleans as 1 or True, else text as it is."""
    text = {"True": "1", "False": "0"}.get(text, text)
    try:
        return int(text, 0)
    except ValueError:
        return text.replace(":", "") if "::" not in text else text


class Capture:
    """The dumped packets as tshark shows them, read once: for each packet its name, what is
    expected and what tshark found, by field."""

    def __init__(self):
        self.packets = None
        self.verbose = ""

    def read(self):
        if self.packets is not None:
            return
        tshark = emulated.need("tshark")
        with tempfile.TemporaryDirectory() as directory:
            pcapng = os.path.join(directory, "packets.pcapng")
            expected = os.path.join(directory, "expected")
            subprocess.run([DUMP, pcapng, expected], check=True)
            with open(expected) as lines:
                wanted = [line.rstrip("\n").split("\t") for line in lines]
            fields = sorted({item.split("=", 1)[0] for line in wanted for item in line[1:]})
            base = [tshark, "-n", "-r", pcapng, "-o", "ip.check_checksum:TRUE",
                    "-o", "udp.check_checksum:TRUE"]
            found = run([*base, "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f",
                         *(word for field in fields for word in ("-e", field))])
            self.verbose = run([*base, "-V"])
        rows = [dict(zip(fields, line.split("\t"))) for line in found.split("\n") if line]
        if len(rows) != len(wanted):
            raise Failure("%d packets went in, tshark shows %d" % (len(wanted), len(rows)))
        self.packets = [
            (line[0], dict(item.split("=", 1) for item in line[1:]), row)
            for line, row in zip(wanted, rows)]


def run(argv):
    env = dict(os.environ, HOME=os.environ.get("TEST_TMPDIR", "/tmp"), LC_ALL="C")
    done = subprocess.run(argv, env=env, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if done.returncode != 0:
        raise Failure("tshark: " + done.stderr)
    return done.stdout


def main():
    capture = Capture()

    def every_packet_is_there():
        capture.read()
        if len(capture.packets) != PACKETS:
            raise Failure("%d packets instead of %d" % (len(capture.packets), PACKETS))

    def every_field_is_what_was_put_in():
        capture.read()
        wrong = ["%s: %s is %r, not %s" % (name, field, row[field], value)
                 for name, expected, row in capture.packets
                 for field, value in expected.items() if number(row[field]) != number(value)]
        if wrong:
            raise Failure("\n".join(wrong[:60]))

    def no_packet_is_malformed():
        capture.read()
        bad = [line for line in capture.verbose.splitlines() if "malformed" in line.lower()]
        if bad:
            raise Failure("\n".join(bad[:20]))

    return emulated.run_cases("tshark", [(f.__name__, f) for f in (
        every_packet_is_there, every_field_is_what_was_put_in, no_packet_is_malformed)])


if __name__ == "__main__":
    sys.exit(main())
