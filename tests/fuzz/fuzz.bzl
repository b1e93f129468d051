"""One fuzz target: a program, its corpus, and the test that runs it (docs/fuzzing.md)."""

load("@rules_cc//cc:defs.bzl", "cc_binary")

def fuzz_target(name, deps, options = []):
    """NAME_fuzz.cc with its corpus: corpus/NAME.tar.gz, and named regression inputs in corpus/NAME.

    With --config=fuzz the target is a libFuzzer program, and the test runs it for some seconds.
    Otherwise the test runs the corpus once. `options` are libFuzzer options that override those of
    fuzz.sh.
    """
    cc_binary(
        name = name + "_target",
        testonly = 1,
        srcs = [name + "_fuzz.cc"],
        tags = ["fuzz"],
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
