"""Tests with an embedded host. They use the public headers only, and run with this project's
libraries."""

load("@rules_cc//cc:defs.bzl", "cc_test")

_LIBRARIES = [
    "//emulator/embedded:librdmaemu.so.1",
    "//shim/rdmacm:librdmacm.so.1",
    "//shim/verbs:libibverbs.so.1",
]

def embedded_test(name, srcs, deps = [], size = "medium", tags = [], slow = False, framework = "gtest_main", data = [], **kwargs):
    """slow: the test repeats itself too often for a sanitized build, so it runs optimised only.

    framework: a target of //tools/bazel/deps. None: the test has its own main."""
    cc_test(
        name = name,
        size = size,
        srcs = srcs + ["//emulator/embedded:librdmaemu.so.1"],
        data = _LIBRARIES + data,
        # Where the loader looks from a test's working directory.
        env = {"LD_LIBRARY_PATH": "emulator/embedded:shim/rdmacm:shim/verbs"},
        linkopts = ["-lrdmacm", "-libverbs"] + (["-lgmock"] if framework == "gtest_main" else []),
        tags = tags + ([] if slow else ["behaviour"]),
        deps = deps + ["//emulator/include:rdmaemu"] +
               (["//tools/bazel/deps:" + framework] if framework else []),
        **kwargs
    )
