"""Checks the files of --pcap and --trace during a run of rping: tshark reads the packets, a JSON
parser the lines."""

import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

SERVER, CLIENT = emulated.free_addresses(2)
CM_MESSAGES = ["ConnectRequest", "ConnectReply", "ReadyToUse", "DisconnectRequest", "DisconnectReply"]
TRACE_KEYS = ["time", "host", "process", "object", "what"]


class Recording:
    """One run of rping over two hosts, recorded on the client's host."""

    def __init__(self):
        self.error = None
        self.packets = self.verbose = ""
        self.trace = []

    def record(self):
        emulated.need("rping")
        emulated.need("tshark")
        with Emulator() as emulator:
            pcap = os.path.join(emulator.directory, "client.pcapng")
            trace = os.path.join(emulator.directory, "client.jsonl")
            rping = ["rping", "-a", SERVER, "-p", "18900", "-V", "-C", "10", "-S", "5000"]
            server = emulator.start_listening("server", SERVER, [*rping, "-s"])
            client = emulator.start("client", CLIENT, [*rping, "-c"],
                                    options=["--pcap", pcap, "--trace", trace])
            for program in (client, server):
                if program.wait(60) != 0:
                    raise Failure(client.describe() + server.describe())
            # Files are complete after the end of their host.
            emulator.rdmaemu("stop", "client")
            self.packets = tshark(pcap)
            self.verbose = tshark(pcap, "-V")
            with open(trace) as lines:
                self.trace = lines.read().splitlines()


def tshark(path, *options):
    done = subprocess.run(["tshark", "-n", "-r", path, *options], text=True, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    if done.returncode != 0:
        raise Failure("tshark cannot read the capture: " + done.stderr)
    return done.stdout


def main():
    recording = Recording()

    def ready():
        if recording.error is None and not recording.packets:
            try:
                recording.record()
            except Exception as error:
                recording.error = error
        if recording.error is not None:
            raise recording.error

    def no_malformed_packet():
        ready()
        bad = [line for line in (recording.packets + recording.verbose).splitlines()
               if "Malformed" in line or "malformed" in line]
        if bad:
            raise Failure("\n".join(bad[:20]))

    def names_cm_messages():
        ready()
        missing = [name for name in CM_MESSAGES if name not in recording.packets]
        if missing:
            raise Failure("tshark does not name %s in\n%s" % (", ".join(missing), recording.packets))

    def shows_every_operation_of_rping():
        ready()
        for text in ("RDMA Read Request", "RDMA Read response", "RDMA Write", "SEND", "Acknowledge"):
            if text.lower() not in recording.verbose.lower():
                raise Failure("no %s in\n%s" % (text, recording.packets))

    def carries_both_addresses():
        ready()
        if SERVER not in recording.packets or CLIENT not in recording.packets:
            raise Failure(recording.packets)

    def trace_is_json_with_its_keys():
        ready()
        if not recording.trace:
            raise Failure("the trace is empty")
        for number, line in enumerate(recording.trace, 1):
            try:
                record = json.loads(line)
            except ValueError as error:
                raise Failure("line %d of the trace: %s\n%s" % (number, error, line))
            missing = [key for key in TRACE_KEYS if key not in record]
            if missing:
                raise Failure("line %d of the trace has no %s\n%s" % (number, missing, line))

    def trace_tells_the_cm_events():
        ready()
        text = "\n".join(recording.trace)
        for event in ("ADDR_RESOLVED", "ROUTE_RESOLVED", "CONNECT_RESPONSE"):
            if event not in text:
                raise Failure("no %s in\n%s" % (event, text[:20000]))

    return emulated.run_cases("capture", [(f.__name__, f) for f in (
        no_malformed_packet, names_cm_messages, shows_every_operation_of_rping,
        carries_both_addresses, trace_is_json_with_its_keys, trace_tells_the_cm_events)])


if __name__ == "__main__":
    sys.exit(main())
