"""A contract test: one source file, run on one emulated host, on two, and by `tools/softroce
test` on the kernel's own drivers."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

# The host options that give a device the habits of a kernel driver.
_HOST_OPTIONS = {
    "minimal": ["--profile", "minimal"],
    "mlx5-ib": ["--profile", "mlx5-ib"],
    "mlx5-roce": ["--profile", "mlx5-roce"],
    "rxe": [],
    "rxe-6.12": ["--profile", "rxe-6.12"],
    "siw": ["--profile", "siw"],
}

_RUNNER = [
    "differences.py",
    "differences.toml",
    "events.py",
    "events/emulator.json",
    "events/emulator_siw.json",
    "harness.py",
    "run.py",
    "//tests/support:emulated",
]

# More ways to run a test whose payloads may use shortcuts, by name: the options of the emulator's
# hosts. No option may change a result.
PAYLOAD_WAYS = {
    "without_shortcuts": ["--payload-shortcuts", "off"],
    # A rule that matches at the doors of payloads but never fires.
    "watched": ["--scenario", "$(location watching.toml)"],
}

# As PAYLOAD_WAYS, for tests of events of RDMA CM, which hosts without shortcuts do not offer.
EVENT_WAYS = {"without_shortcuts": PAYLOAD_WAYS["without_shortcuts"]}

def contract_test(name, hosts = [1, 2], kernel = ["rxe"], habits = ["rxe"], ways = {}, slow = False, kind = "common", timed = False, clocks = True, exclusive = False, layer = False, sanitized = True, tags = []):
    """Args:
    hosts: on how many emulated hosts it runs, a target each.
    kernel: on which of the kernel's drivers it runs as well: "rxe", "siw".
    ways: other options of the emulator's hosts, by name; one target more for each number of hosts.
    habits: with which profiles it runs on the emulator; a target each.
    slow: single tests wait for the kernel's time-outs of a minute and more; there each of them runs
      in a process of its own, all at once.
    kind: the kind that run.py takes. "waiting": tests wait for seconds on the emulator, too.
      "minutes": tests wait for minutes. `clocks_test` then runs the test on the real clock as well,
      beside the others, and its own target is manual.
    timed: timers of the host decide what the test sees. `clocks_test` runs it under every clock. It
      runs other tests, and tests that wait, under the virtual clock alone.
    clocks: `clocks_test` runs it. False for a long product whose subject has no timers.
    exclusive: it changes devices or links, so that nothing else may run beside it on the kernel.
    sanitized: it also runs with host and libraries sanitized, on one host with the habits of rxe.
    layer: it also runs under the layer (shim/layer), on one host, with the same verdicts.
    """
    cc_binary(
        name = name + "_binary",
        testonly = 1,
        srcs = [name + ".cc"],
        tags = (
            ["kernel_" + one for one in kernel] +
            (["kernel_slow"] if slow else []) +
            (["kernel_exclusive"] if exclusive else []) +
            (["clocks_%d_%s_%s_%s" % (max(hosts), kind, profile, "all" if timed or kind != "common" else "virtual") for profile in habits] if clocks else [])
        ),
        visibility = ["//tests:__subpackages__"],
        deps = [":support", "//tools/bazel/deps:gtest"],
    )
    for profile in habits:
        for count in hosts:
            native.sh_test(
                name = name + ("" if profile == "rxe" else "_" + profile) + ("" if count == 1 else "_two_hosts"),
                size = "large" if kind == "minutes" else "medium",
                srcs = ["//tests/support:python_test.sh"],
                args = [
                    "$(location run.py)",
                    "$(location :%s_binary)" % name,
                    str(count),
                    "$(location differences.toml)",
                    "slow" if kind == "minutes" else kind,
                ] + _HOST_OPTIONS[profile],
                data = [":%s_binary" % name] + _RUNNER,
                # On one host every path of the shim and the host is sanitized once (tools/test).
                tags = tags + (["sanitized_too"] if sanitized and kind == "common" and profile == "rxe" and count == 1 else []) +
                       (["manual"] if kind == "minutes" else []),
            )

    if layer:
        native.sh_test(
            name = name + "_under_layer",
            size = "medium",
            srcs = ["//tests/support:layer_test.sh"],
            args = [
                "$(location run.py)",
                "$(location :%s_binary)" % name,
                "1",
                "$(location differences.toml)",
                kind,
            ],
            data = [":%s_binary" % name] + _RUNNER,
            tags = tags,
        )

    for way, options in ways.items():
        for count in hosts:
            native.sh_test(
                name = name + "_" + way + ("" if count == 1 else "_two_hosts"),
                size = "medium",
                srcs = ["//tests/support:python_test.sh"],
                args = [
                    "$(location run.py)",
                    "$(location :%s_binary)" % name,
                    str(count),
                    "$(location differences.toml)",
                    kind,
                ] + options,
                data = [":%s_binary" % name, "delayed.toml", "watching.toml", ":rereg.toml"] + _RUNNER,
                tags = tags,
            )

def contract_clocks_test(name):
    """All contract tests of this BUILD file under the virtual clock, and those that timers decide under
    each clock, in one target: each with all its habits, on as many hosts as it has at most. Stands
    after them."""
    runs = []
    for rule in native.existing_rules().values():
        for tag in rule["tags"]:
            if rule["kind"] == "cc_binary" and tag.startswith("clocks_"):
                runs.append((rule["name"], tag[len("clocks_"):].replace("_", ",")))
    native.sh_test(
        name = name,
        size = "large",
        srcs = ["//tests/support:python_test.sh"],
        args = ["$(location clocks.py)", "$(location differences.toml)"] +
               ["$(location :%s),%s" % (binary, how) for binary, how in runs],
        data = {":" + binary: None for binary, _ in runs}.keys() + ["clocks.py"] + _RUNNER,
    )

def contract_manifest(name):
    """All contract tests of this BUILD file that the kernel runs: a JSON object by binary, for
    tests/softroce/contract.py. Stands after them."""
    kinds = {}
    for rule in native.existing_rules().values():
        if rule["kind"] == "cc_binary":
            kinds[rule["name"]] = [tag[len("kernel_"):] for tag in rule["tags"] if tag.startswith("kernel_")]
    on_kernel = {one: kind for one, kind in kinds.items() if "rxe" in kind or "siw" in kind}
    native.genrule(
        name = name,
        testonly = 1,
        outs = [name + ".json"],
        cmd = "echo '%s' >$@" % struct(binaries = on_kernel).to_json(),
    )
    native.filegroup(
        name = "on_the_kernel",
        testonly = 1,
        srcs = [name + ".json", ":runner"] + [":" + one for one in on_kernel],
        visibility = ["//visibility:public"],
    )
