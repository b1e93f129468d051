"""An independent reader checks the bytes. tshark must find the written value of every field in
every packet. The packets have every opcode and CM message of the emulator, over IPv4 and IPv6."""

import collections
import ipaddress
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import emulated  # noqa: E402
import tables  # noqa: E402
from emulated import Failure  # noqa: E402

DUMP = os.path.abspath("tests/wire/dump_packets")
MAD_DATA = "infiniband.mad.data"
INFO = "_ws.col.Info"
# Inner protocols that tshark would guess from the patterns.
GUESSES = ("infiniband_sdp", "lnet", "iser", "nvme-rdma", "smc", "smb_direct", "rpcordma",
           "infiniband.eoib", "fcoib")
SYNDROME = "infiniband.aeth.syndrome."

Packet = collections.namedtuple("Packet", "name put found")
Check = collections.namedtuple("Check", "ours field wanted found")


def number(text):
    """Converts tshark's text: numbers are decimal or 0x..., booleans are 1 or True, other text
    stays."""
    text = {"True": "1", "False": "0"}.get(text, text)
    try:
        return int(text, 0)
    except ValueError:
        return text.replace(":", "") if "::" not in text else text


def place_of(row):
    return "%d.%d/%d" % row[:3]


def at_place(mad_data, row):
    """Returns the bits of a message as a number (up to 64 bits) or as hexadecimal digits."""
    byte, bit, width = row[:3]
    if width > 64:
        return mad_data[2 * byte:2 * byte + width // 4]
    bits = int(mad_data, 16) >> (4 * len(mad_data) - 8 * byte - bit - width)
    return bits & ((1 << width) - 1)


def syndrome_parts(syndrome):
    """Returns the kind and the name of the lower bits, by IBTA 9.7.5.2, table 43."""
    kind, value = syndrome >> 5 & 3, syndrome & 0x1f
    name = {0: "credit_count", 1: "timer", 2: "reserved_value", 3: "error_code"}[kind]
    return {SYNDROME + "reserved": syndrome >> 7, SYNDROME + "opcode": kind, SYNDROME + name: value}


class Capture:
    """The dumped packets as tshark shows them, read once."""

    def __init__(self):
        self.packets = None
        self.verbose = ""

    def read(self):
        if self.packets is not None:
            return self.packets
        tshark = emulated.need("tshark")
        wanted_fields = {field for rows in (row[2] for row in tables.CM.values())
                         for *_, field in rows if "." in field and " " not in field}
        wanted_fields |= {field + "_ipv4" for field in wanted_fields if field.endswith("gid")
                          and "prim_" in field}
        wanted_fields |= set(tables.HEADERS.values()) | {INFO, MAD_DATA}
        wanted_fields |= {"infiniband.mad.attributeid", "infiniband.cm.req.serviceid.prefix"}
        for always in (tables.ALWAYS, tables.ALWAYS_IPV4, tables.ALWAYS_MAD):
            wanted_fields |= set(always)
        for syndrome in (0, 0x20, 0x40, 0x60):
            wanted_fields |= set(syndrome_parts(syndrome))
        columns = sorted(wanted_fields)
        with tempfile.TemporaryDirectory() as directory:
            pcapng = os.path.join(directory, "packets.pcapng")
            expected = os.path.join(directory, "expected")
            subprocess.run([DUMP, pcapng, expected], check=True)
            with open(expected) as lines:
                put = [line.rstrip("\n").split("\t") for line in lines]
            base = [tshark, "-n", "-r", pcapng, "-o", "ip.check_checksum:TRUE",
                    "-o", "udp.check_checksum:TRUE"]
            base += [word for guess in GUESSES for word in ("--disable-protocol", guess)]
            found = run([*base, "-T", "fields", "-E", "separator=/t", "-E", "occurrence=f",
                         *(word for field in columns for word in ("-e", field))])
            self.verbose = run([*base, "-V"])
        rows = [dict(zip(columns, line.split("\t"))) for line in found.split("\n") if line]
        if len(rows) != len(put):
            raise Failure("%d packets went in, tshark shows %d" % (len(put), len(rows)))
        self.packets = [Packet(line[0], dict(item.split("=", 1) for item in line[1:]), row)
                        for line, row in zip(put, rows)]
        return self.packets


def run(argv):
    env = dict(os.environ, HOME=os.environ.get("TEST_TMPDIR", "/tmp"), LC_ALL="C")
    done = subprocess.run(argv, env=env, text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=240)
    if done.returncode != 0:
        raise Failure("tshark: " + done.stderr)
    return done.stdout


def header_checks(packet):
    """Returns the compared headers: (this project's field, tshark's, the written value, the found
    value)."""
    always = dict(tables.ALWAYS)
    if "ipv4.source" in packet.put:
        always.update(tables.ALWAYS_IPV4)
    if packet.name in tables.CM:
        always.update(tables.ALWAYS_MAD)
        always["infiniband.mad.attributeid"] = tables.CM[packet.name][0]
    if "aeth.syndrome" in packet.put:
        always.update(syndrome_parts(int(packet.put["aeth.syndrome"])))
    for field, value in always.items():
        yield Check("always", field, value, number(packet.found[field]))
    for ours, value in packet.put.items():
        if "/" in ours:
            continue
        field = tables.HEADERS[ours]
        wanted = int(value, 16) if ours == "icrc" else number(value)
        found = number(packet.found[field])
        if ours in ("payload", "imm.immediate", "ieth.invalidate_rkey", "rdma_cm.private_data"):
            wanted, found = value, packet.found[field].replace(":", "")
        yield Check(ours, field, wanted, found)


def cm_checks(packet):
    """Checks every field of a CM message by its place in tshark's bytes. Where tshark dissects the
    message, also checks tshark's own field."""
    over_ipv4 = "ipv4.source" in packet.put
    is_rdma_cm = "rdma_cm.port" in packet.put
    for row in tables.CM[packet.name][2]:
        width, ours, field = row[2:]
        value = packet.put.get(place_of(row), "")
        wanted = value if width > 64 else number(value)
        yield Check(ours, MAD_DATA + " " + place_of(row), wanted,
                    at_place(packet.found[MAD_DATA], row))
        if " " in field or (is_rdma_cm and ours == "private_data"):
            continue
        found = packet.found[field]
        if ours.startswith("primary.") and width == 128:
            if over_ipv4:
                field += "_ipv4"
                wanted = str(ipaddress.IPv4Address(bytes.fromhex(value)[12:]))
            else:
                wanted = str(ipaddress.IPv6Address(bytes.fromhex(value)))
            yield Check(ours, field, ipaddress.ip_address(wanted),
                        ipaddress.ip_address(packet.found[field] or "0.0.0.0"))
            continue
        if ours.endswith("flow_label"):
            wanted >>= 8
        yield Check(ours, field, wanted, found.replace(":", "") if width > 64 else number(found))


def main():
    capture = Capture()

    def every_opcode_and_message_is_in_the_list_and_was_sent():
        sent = {packet.name for packet in capture.read()}
        known = set(tables.OPCODES) | set(tables.CM)
        if sent != known:
            raise Failure("without a row in tables.py: %s; in tables.py, but not in the emulator's "
                          "tables: %s" % (sorted(sent - known), sorted(known - sent)))

    def every_opcode_and_message_has_the_name_that_was_meant():
        wrong = []
        for packet in capture.read():
            if packet.name in tables.CM:
                right = packet.found[INFO] == tables.CM[packet.name][1]
            else:
                right = packet.found[INFO].split("QP=")[0].strip() == tables.OPCODES[packet.name]
            if not right:
                wrong.append("%s: tshark says %r" % (packet.name, packet.found[INFO]))
        if wrong:
            raise Failure("\n".join(wrong[:60]))

    def every_field_of_the_emulators_cm_layout_is_in_the_table():
        wrong = []
        for packet in capture.read():
            if packet.name not in tables.CM:
                continue
            put = {ours for ours in packet.put if "/" in ours}
            known = {place_of(row) for row in tables.CM[packet.name][2]}
            if put != known:
                wrong.append("%s: without a row: %s; not written: %s" %
                             (packet.name, sorted(put - known), sorted(known - put)))
        if wrong:
            raise Failure("\n".join(sorted(set(wrong))))

    def compare(checks_of, names):
        wrong, fields, count = [], set(), 0
        values = collections.defaultdict(set)
        for packet in capture.read():
            if packet.name not in names:
                continue
            for check in checks_of(packet):
                count += 1
                fields.add((packet.name, check.ours, check.field))
                values[packet.name, check.ours].add(str(check.wanted))
                if check.wanted != check.found:
                    wrong.append("%s: %s: put in %s, %s shows %s" %
                                 (packet.name, check.ours, check.wanted, check.field, check.found))
        print("%d comparisons of %d fields" % (count, len(fields)))
        if wrong:
            raise Failure("%d differ\n%s" % (len(wrong), "\n".join(wrong[:60])))
        return values

    def every_header_field_is_what_was_put_in():
        compare(header_checks, set(tables.OPCODES) | set(tables.CM))

    def every_cm_field_is_what_was_put_in():
        values = compare(cm_checks, set(tables.CM))
        few = sorted("%s.%s" % key for key, seen in values.items() if len(seen) < 2)
        if few:
            raise Failure("these never changed: " + ", ".join(few))

    def no_packet_is_malformed():
        capture.read()
        bad = [line for line in capture.verbose.splitlines() if "malformed" in line.lower()]
        if bad:
            raise Failure("\n".join(bad[:20]))

    def what_tshark_does_not_show_is_listed():
        reasons = dict(tables.NOT_SHOWN)
        for name, (_, _, rows) in sorted(tables.CM.items()):
            for *_, ours, reason in rows:
                if " " in reason:
                    reasons["%s.%s" % (name, ours)] = reason
        print("not shown by tshark (those of CM messages are compared by their place in its bytes):")
        for ours, reason in reasons.items():
            print("  %s: %s" % (ours, reason))

    return emulated.run_cases("tshark", [(f.__name__, f) for f in (
        every_opcode_and_message_is_in_the_list_and_was_sent,
        every_opcode_and_message_has_the_name_that_was_meant,
        every_field_of_the_emulators_cm_layout_is_in_the_table,
        every_header_field_is_what_was_put_in, every_cm_field_is_what_was_put_in,
        no_packet_is_malformed, what_tshark_does_not_show_is_listed)])


if __name__ == "__main__":
    sys.exit(main())
