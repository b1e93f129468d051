"""A test whose host is inside it: a program of the public headers alone, run with this project's
libraries."""

load("@rules_cc//cc:defs.bzl", "cc_test")

_LIBRARIES = [
    "//emulator/embedded:librdmaemu.so.1",
    "//shim/rdmacm:librdmacm.so.1",
    "//shim/verbs:libibverbs.so.1",
]

def embedded_test(name, srcs, deps = [], size = "medium", tags = [], slow = False, framework = "gtest_main", **kwargs):
    """slow: it repeats itself too often for a sanitized build, and runs optimised.

    framework: of //tools/bazel/deps; None: the test has a main of its own."""
    cc_test(
        name = name,
        size = size,
        srcs = srcs + ["//emulator/embedded:librdmaemu.so.1"],
        data = _LIBRARIES,
        # Where the loader looks from a test's working directory.
        env = {"LD_LIBRARY_PATH": "emulator/embedded:shim/rdmacm:shim/verbs"},
        linkopts = ["-lrdmacm", "-libverbs"] + (["-lgmock"] if framework == "gtest_main" else []),
        tags = tags + ([] if slow else ["behaviour"]),
        deps = deps + ["//emulator/include:rdmaemu"] +
               (["//tools/bazel/deps:" + framework] if framework else []),
        **kwargs
    )
