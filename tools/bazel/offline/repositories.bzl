"""Stand-ins for what Bazel 4 would download: Debian's build must not touch the network.

Debian's Bazel reports an empty native.bazel_version; a newer Bazel uses the real rules.
"""

def offline_repositories():
    version = native.bazel_version
    if version and not version.startswith("4.") and version != "no_version":
        return
    for name in ["rules_cc", "rules_java", "remote_coverage_tools"]:
        native.local_repository(name = name, path = "tools/bazel/offline/" + name)
