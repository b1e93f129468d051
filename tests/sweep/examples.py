"""The examples of docs/examples are clean under a sweep: no fault makes them crash, hang, leak or
report a success that is none."""

import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

LIMIT_S = 400  # of one sweep, on a busy machine
KNOWN = os.path.join(HERE, "examples_known.toml")
EXAMPLES = os.path.abspath("docs/examples")


def is_clean(words):
    with Emulator() as emulator:
        report = os.path.join(emulator.directory, "sweep")
        result = subprocess.run(
            [emulated.RDMAEMU, "sweep", "--report", report, "--json", "--baseline", KNOWN, *words],
            env=emulator.env, text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            timeout=LIMIT_S)
        try:
            results = json.loads(result.stdout)
        except ValueError:
            raise Failure("no results: " + result.stdout + result.stderr)
        found = [case for case in results["cases"] if "command" in case]
        if result.returncode != 0 or results["new_findings"] != 0:
            raise Failure("status %s, findings:\n%s" %
                          (result.returncode, json.dumps(found, indent=1)))
        if len(results["cases"]) < 100:
            raise Failure("only %d cases were run" % len(results["cases"]))


# The server ends by SIGTERM. The test fails if the server ends before it listens.
TEST = """
$1 & server=$!
until "$3" wait --host sweep --listening 7471 --timeout 100ms 2>/dev/null; do
  kill -0 $server || exit 9
done
$2
status=$?
kill $server
wait $server
exit $status
"""


def is_pair_clean(server, client):
    is_clean(["--program-time", "--jobs", "2", "--time-budget", "0", "--limit",
              "30s", "--", "sh", "-c", TEST, "sh", server, client, emulated.RDMAEMU])


def the_key_value_example_is_clean():
    binaries = os.path.join(EXAMPLES, "kv")
    is_pair_clean("%s/kv_server 7471" % binaries,
                  "%s/kv_client 127.0.0.1 7471 put name value" % binaries)


def the_event_driven_example_is_clean():
    service = os.path.join(EXAMPLES, "epoll", "service")
    is_pair_clean("%s serve 7471" % service, "%s ask 127.0.0.1 7471 hello" % service)


def main():
    return emulated.run_cases("sweep.examples", [(each.__name__, each) for each in (
        the_key_value_example_is_clean, the_event_driven_example_is_clean)])


if __name__ == "__main__":
    sys.exit(main())
