"""Unity builds: several .cc files of one folder are compiled as one unit.

Most of a compilation is reading headers, and the files of one folder read the same ones: a folder
compiles three times faster this way. Files that share a unit share its anonymous namespace too, so
the helpers in it need names of their own within the folder. `--define unity=off` compiles each
file alone."""

load("@rules_cc//cc:defs.bzl", "cc_library", "cc_test")

_FILES_PER_UNIT = 8

def _unity_source_impl(ctx):
    ctx.actions.write(ctx.outputs.out, "".join(['#include "%s"\n' % file for file in ctx.attr.files]))

# Bazel writes the file itself. A genrule would start a process for each unit.
_unity_source = rule(
    implementation = _unity_source_impl,
    attrs = {
        "files": attr.string_list(mandatory = True),
        "out": attr.output(mandatory = True),
    },
)

def _units(name, srcs, files_per_unit):
    """Declares the units of `srcs`, and returns their names."""
    package = native.package_name()
    srcs = sorted(srcs)
    count = (len(srcs) + files_per_unit - 1) // files_per_unit
    units = []
    for index in range(count):
        unit = "%s_unit%d.cc" % (name, index)
        # Files adjacent in the alphabet share headers, so they stay in one unit.
        files = srcs[index * len(srcs) // count:(index + 1) * len(srcs) // count]
        _unity_source(
            name = unit[:-3],
            files = [package + "/" + one for one in files],
            out = unit,
        )
        units.append(unit)
    return units

def _split(name, srcs, files_per_unit, own):
    """srcs and textual_hdrs of a rule for `srcs`; `own` are sources that are units already."""
    units = _units(name, srcs, files_per_unit)
    return (
        select({"//tools/bazel:unity_off": srcs + own, "//conditions:default": units + own}),
        select({"//tools/bazel:unity_off": [], "//conditions:default": srcs}),
    )

def unity_library(name, srcs, generated = [], files_per_unit = _FILES_PER_UNIT, textual_hdrs = [], **kwargs):
    """A cc_library whose `srcs` (files of this folder) are compiled as few units.

    `generated` are sources that other rules make; each stays a unit of its own."""
    units, files = _split(name, srcs, files_per_unit, generated)
    cc_library(name = name, srcs = units, textual_hdrs = files + textual_hdrs, **kwargs)

def unity_test(name, srcs, hdrs = [], deps = [], tags = [], files_per_unit = _FILES_PER_UNIT, **kwargs):
    """One cc_test of all test files in `srcs`; run one suite with --test_filter=Suite.*

    The tag `behaviour` (tools/test): its verdict is the same in every build."""
    units, files = _split(name, srcs, files_per_unit, [])
    # A cc_test has no textual_hdrs, so a library provides them.
    cc_library(name = name + "_files", testonly = 1, textual_hdrs = files + hdrs)
    cc_test(
        name = name,
        srcs = units,
        tags = tags + ["behaviour"],
        deps = deps + [":" + name + "_files"],
        **kwargs
    )
