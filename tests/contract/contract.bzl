"""A contract test: one source file, run on one emulated host and on two over UDP."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

def contract_test(name, hosts = [1, 2], size = "medium", tags = []):
    """Args: hosts: on how many hosts it runs, a target each."""
    cc_binary(
        name = name + "_binary",
        testonly = 1,
        srcs = [name + ".cc"],
        deps = [":support", "//tools/bazel/deps:gtest"],
    )
    for count in hosts:
        native.sh_test(
            name = name if count == 1 else name + "_over_udp",
            size = size,
            srcs = ["//tests/support:python_test.sh"],
            args = [
                "$(location run.py)",
                "$(location :%s_binary)" % name,
                str(count),
            ],
            data = [":%s_binary" % name, "run.py", "//tests/support:emulated"],
            tags = tags,
        )
