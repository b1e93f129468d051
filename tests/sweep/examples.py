"""The examples of docs/examples are clean under a sweep: no fault makes them crash, hang, leak or
report a success that is none."""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import emulated  # noqa: E402
from emulated import Emulator, Failure  # noqa: E402

EXAMPLES = os.path.join(HERE, "..", "..", "docs", "examples")


def is_clean(words):
    with Emulator() as emulator:
        report = os.path.join(emulator.directory, "sweep")
        result = emulator.rdmaemu("sweep", "--report", report, "--json", *words)
        try:
            results = json.loads(result.stdout)
        except ValueError:
            raise Failure("no results: " + result.stdout + result.stderr)
        found = [case for case in results["cases"] if "command" in case or
                 case["verdict"] == "not-run"]
        if result.returncode != 0 or found:
            raise Failure("status %s, findings:\n%s" %
                          (result.returncode, json.dumps(found, indent=1)))
        if len(results["cases"]) < 30:
            raise Failure("only %d cases were run" % len(results["cases"]))


def the_key_value_example_is_clean():
    server = os.path.join(EXAMPLES, "kv", "kv_server")
    client = os.path.join(EXAMPLES, "kv", "kv_client")
    is_clean(["--server", "%s 7471" % server, "--client",
              "%s 127.0.0.1 7471 put name value" % client, "--time-budget", "50s"])


def main():
    return emulated.run_cases("sweep.examples", [(each.__name__, each) for each in (
        the_key_value_example_is_clean,)])


if __name__ == "__main__":
    sys.exit(main())
