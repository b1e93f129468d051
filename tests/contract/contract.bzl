"""A contract test: one source file, run on one emulated host, on two over UDP, and by `tools/softroce
test` on the kernel's own drivers."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

# What the emulator's hosts are told so that a device has the habits of a kernel driver.
_HOST_OPTIONS = {"rxe": [], "siw": ["--profile", "siw"]}

def contract_test(name, hosts = [1, 2], kernel = ["rxe"], habits = ["rxe"], slow = False, exclusive = False, size = "medium", tags = []):
    """Args:
    hosts: on how many emulated hosts it runs, a target each.
    kernel: on which of the kernel's drivers it runs as well: "rxe", "siw".
    habits: with which profiles it runs on the emulator; a target each.
    slow: single tests wait for the kernel's time-outs of a minute and more; there each of them runs
      in a process of its own, all at once.
    exclusive: it changes devices or links, so that nothing else may run beside it on the kernel.
    """
    cc_binary(
        name = name + "_binary",
        testonly = 1,
        srcs = [name + ".cc"],
        tags = (
            ["kernel_" + one for one in kernel] +
            (["kernel_slow"] if slow else []) +
            (["kernel_exclusive"] if exclusive else [])
        ),
        deps = [":support", "//tools/bazel/deps:gtest"],
    )
    for profile in habits:
        for count in hosts:
            native.sh_test(
                name = name + ("" if profile == "rxe" else "_" + profile) + ("" if count == 1 else "_over_udp"),
                size = size,
                srcs = ["//tests/support:python_test.sh"],
                args = [
                    "$(location run.py)",
                    "$(location :%s_binary)" % name,
                    str(count),
                    "$(location differences.toml)",
                    "slow" if slow else "common",
                ] + _HOST_OPTIONS[profile],
                data = [
                    ":%s_binary" % name,
                    "differences.py",
                    "differences.toml",
                    "events.py",
                    "events/emulator.json",
                    "events/emulator_siw.json",
                    "harness.py",
                    "run.py",
                    "//tests/support:emulated",
                ],
                tags = tags,
            )

def contract_clock_test(name, clock, slow, tests, hosts = 2):
    """Contract tests on hosts with that clock, in one target.

    Args:
    slow: the one whose tests wait for long time-outs.
    """
    native.sh_test(
        name = name,
        size = "large",
        srcs = ["//tests/support:python_test.sh"],
        args = [
            "$(location clocks.py)",
            clock,
            str(hosts),
            "$(location differences.toml)",
        ] + ["$(location :%s_binary)" % test for test in [slow] + tests],
        data = [":%s_binary" % test for test in [slow] + tests] + [
            "clocks.py",
            "differences.py",
            "differences.toml",
            "events.py",
            "events/emulator.json",
            "harness.py",
            "run.py",
            "//tests/support:emulated",
        ],
        tags = ["clock"],
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
