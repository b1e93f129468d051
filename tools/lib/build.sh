# shellcheck shell=bash
# Builds rdmaemu and its libraries, optimised, if their sources are newer. tools/rdmaemu and
# tools/quickstart source this file. BAZEL_STARTUP_OPTIONS and BAZEL_OPTIONS are passed to Bazel, as
# in tools/test. The defaults are the same, because other startup options would restart the server.

# shellcheck source=tools/lib/cache.sh
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/cache.sh"

# rdmaemu_build_targets ROOT WHAT TARGET...: builds targets that are not up to date. Prints one
# line, and errors. Results are under ROOT/bazel-opt-bin.
rdmaemu_build_targets() {
  local root=$1 what=$2 startup options cache log status=0
  shift 2
  read -ra startup <<<"${BAZEL_STARTUP_OPTIONS:---host_jvm_args=-Xmx1g}"
  read -ra options <<<"${BAZEL_OPTIONS:-}"
  if ! command -v bazel >/dev/null; then
    echo "error: bazel is not installed; run tools/quickstart once, which installs what is" \
      "missing, or: apt-get install bazel-bootstrap" >&2
    return 1
  fi
  cache_options
  echo "building $what, optimised ..." >&2
  log=$(mktemp)
  # A separate prefix is used because bazel-bin changes with every build of another configuration.
  (cd "$root" && bazel "${startup[@]}" build --config=opt --symlink_prefix=bazel-opt- \
    --show_result=0 "${cache[@]}" "${options[@]}" "$@") >"$log" 2>&1 || status=1
  if ((status)); then
    cat "$log" >&2
    echo "error: the build failed, see above" >&2
  fi
  rm -f "$log"
  return "$status"
}

# rdmaemu_build ROOT: builds if needed, and sets rdmaemu_binary.
rdmaemu_build() {
  local root=$1 stamp begun
  rdmaemu_binary=$root/bazel-opt-bin/tools/cli/rdmaemu
  stamp=$root/bazel-opt-built
  if [[ -x $rdmaemu_binary && -e $stamp &&
    -z $(find "$root"/{emulator,shim,tools,WORKSPACE,BUILD,.bazelrc} -newer "$stamp" \
      -type f ! -name '*.py' ! -name '*.sh' -print -quit) ]]; then
    return 0
  fi
  # A file that is edited during the build must be newer than the result.
  begun=$(mktemp)
  if rdmaemu_build_targets "$root" rdmaemu \
    //tools/cli:rdmaemu //shim/verbs:libibverbs.so.1 //shim/rdmacm:librdmacm.so.1 \
    //shim/layer:libibverbs.so.1 //shim/layer:librdmacm.so.1; then
    mv "$begun" "$stamp"
  else
    rm -f "$begun"
    return 1
  fi
}
