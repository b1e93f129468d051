"""One fuzz target: a program, its corpus, and the test that runs it (docs/fuzzing.md)."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

def fuzz_target(name, deps, options = []):
    """NAME_fuzz.cc with its corpus: corpus/NAME.tar.gz, and regression inputs by name in corpus/NAME.

    Under --config=fuzz it is a libFuzzer program and the test runs it for a time; elsewhere it
    goes over the corpus once. `options` are libFuzzer's, over those of fuzz.sh.
    """
    cc_binary(
        name = name + "_target",
        testonly = 1,
        srcs = [name + "_fuzz.cc"],
        linkopts = select({
            ":fuzzing": ["-fsanitize=fuzzer"],
            "//conditions:default": [],
        }),
        deps = deps + [":input"] + select({
            ":fuzzing": [],
            "//conditions:default": [":replay"],
        }),
    )
    archive = "corpus/%s.tar.gz" % name
    native.sh_test(
        name = name,
        timeout = "long",
        srcs = ["fuzz.sh"],
        args = [
            "$(location :%s_target)" % name,
            "$(location %s)" % archive,
        ] + options,
        data = [":%s_target" % name, archive] + native.glob(["corpus/%s/*" % name]),
        tags = ["fuzz"],
    )
