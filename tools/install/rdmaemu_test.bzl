"""rdmaemu_test: a test of two programs on two emulated hosts, as rdmaemu_add_test of CMake. The server
is on host `server` (127.0.1.1), the client on host `client` (127.0.1.2). docs/unit-tests.md has an
example, and docs/embedding.md the lines of the WORKSPACE file."""

_SCRIPT = """#!/usr/bin/env bash
report=()
{report}exec bash {run_pair} "${{report[@]}}" {words}
"""

# The outputs of a failed test are in bazel-testlogs/.../test.outputs.
_REPORT = """if [[ -n ${TEST_UNDECLARED_OUTPUTS_DIR:-} ]]; then
  report=(--report "$TEST_UNDECLARED_OUTPUTS_DIR/rdmaemu-report")
fi
"""

def _quote(word):
    return "'" + word.replace("'", "'\\''") + "'"

def _words(ctx, program, args):
    # A test runs in its runfiles, where generated files have no prefix.
    output = ctx.bin_dir.path + "/"
    expanded = [ctx.expand_location(arg, ctx.attr.data).replace(output, "") for arg in args]
    return ["./" + program.short_path] + expanded

def _rdmaemu_test_impl(ctx):
    run_pair = [file for file in ctx.files._command if file.basename == "run-pair"][0]
    options = ["--timeout", str(ctx.attr.time_limit_s)]
    if ctx.attr.port:
        options += ["--port", str(ctx.attr.port)]
    if ctx.attr.clock:
        options += ["--clock", ctx.attr.clock]
    if ctx.attr.server_stays:
        options.append("--server-stays")
    if ctx.attr.strict:
        options.append("--strict")
    files = ctx.files._command + ctx.files.data
    if ctx.file.scenario:
        options += ["--scenario", ctx.file.scenario.short_path]
        files.append(ctx.file.scenario)
    words = options + ["--"] + \
            _words(ctx, ctx.executable.server, ctx.attr.server_args) + [":::"] + \
            _words(ctx, ctx.executable.client, ctx.attr.client_args)
    script = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(
        script,
        _SCRIPT.format(
            report = _REPORT if ctx.attr.report else "",
            run_pair = _quote(run_pair.short_path),
            words = " ".join([_quote(word) for word in words]),
        ),
        is_executable = True,
    )
    runfiles = ctx.runfiles(files + [ctx.executable.server, ctx.executable.client])
    for target in [ctx.attr.server, ctx.attr.client] + ctx.attr.data:
        runfiles = runfiles.merge(target[DefaultInfo].default_runfiles)
    return [DefaultInfo(executable = script, runfiles = runfiles)]

rdmaemu_test = rule(
    implementation = _rdmaemu_test_impl,
    test = True,
    attrs = {
        "client": attr.label(mandatory = True, executable = True, cfg = "target", allow_files = True, doc = "The program or script that starts when the server listens by rdma_listen"),
        "client_args": attr.string_list(doc = "Its arguments. $(location) of data is expanded"),
        "clock": attr.string(doc = "The clock of both hosts, as of `rdmaemu run`"),
        "data": attr.label_list(allow_files = True, doc = "Files that the programs read"),
        "port": attr.int(doc = "Start the client when the server listens on this port. 0: any port"),
        "report": attr.bool(default = True, doc = "A failed test leaves a report of both hosts in its undeclared outputs"),
        "scenario": attr.label(allow_single_file = True, doc = "Fault rules of both hosts"),
        "server": attr.label(mandatory = True, executable = True, cfg = "target", allow_files = True, doc = "The program or script on host `server`"),
        "server_args": attr.string_list(doc = "Its arguments. $(location) of data is expanded"),
        "server_stays": attr.bool(doc = "The server does not end by itself. It gets SIGTERM when the client has ended, and its status does not count"),
        "strict": attr.bool(doc = "The test fails when a rule of the scenario fires on neither host"),
        "time_limit_s": attr.int(default = 60, doc = "The test fails after so many seconds of real time"),
        "_command": attr.label(default = "//:command"),
    },
    doc = "A server and a client on two emulated hosts. Fails when either program fails.",
)
