# shellcheck shell=bash
# Builds rdmaemu and its two libraries, optimised, when their sources are newer. Sourced by
# tools/rdmaemu and tools/quickstart. BAZEL_STARTUP_OPTIONS and BAZEL_OPTIONS are handed on to Bazel,
# as in tools/test, whose defaults they share: other startup options would restart the server.

# rdmaemu_build_targets ROOT WHAT TARGET...: builds what is not up to date; silent but for the word
# that it does so, and for errors. Results lie under ROOT/bazel-opt-bin.
rdmaemu_build_targets() {
  local root=$1 what=$2 startup options log status=0
  shift 2
  read -ra startup <<<"${BAZEL_STARTUP_OPTIONS:---host_jvm_args=-Xmx1g}"
  read -ra options <<<"${BAZEL_OPTIONS:-}"
  if ! command -v bazel >/dev/null; then
    echo "error: bazel is not installed; run tools/quickstart once, which installs what is" \
      "missing, or: apt-get install bazel-bootstrap" >&2
    return 1
  fi
  echo "building $what, optimised ..." >&2
  log=$(mktemp)
  # A prefix of its own: bazel-bin changes with every build of another configuration.
  (cd "$root" && bazel "${startup[@]}" build --config=opt --symlink_prefix=bazel-opt- \
    --show_result=0 "${options[@]}" "$@") >"$log" 2>&1 || status=1
  if ((status)); then
    cat "$log" >&2
    echo "error: the build failed, see above" >&2
  fi
  rm -f "$log"
  return "$status"
}

# rdmaemu_build ROOT: builds where needed, and sets rdmaemu_binary.
rdmaemu_build() {
  local root=$1 stamp begun
  rdmaemu_binary=$root/bazel-opt-bin/tools/cli/rdmaemu
  stamp=$root/bazel-opt-built
  if [[ -x $rdmaemu_binary && -e $stamp &&
    -z $(find "$root"/{emulator,shim,tools,WORKSPACE,BUILD,.bazelrc} -newer "$stamp" \
      -type f ! -name '*.py' ! -name '*.sh' -print -quit) ]]; then
    return 0
  fi
  # What is edited while the build runs is newer than its result.
  begun=$(mktemp)
  if rdmaemu_build_targets "$root" rdmaemu \
    //tools/cli:rdmaemu //shim/verbs:libibverbs.so.1 //shim/rdmacm:librdmacm.so.1 \
    //shim/layer:librdmaemu_layer.so; then
    mv "$begun" "$stamp"
  else
    rm -f "$begun"
    return 1
  fi
}
