# shellcheck shell=bash
# Provides a writable home directory. tools/test and tools/softroce source this file. A service or a
# test may have no home, but Bazel and caches need one.

# home_ensure: sets and exports HOME.
home_ensure() {
  if [[ -z "${HOME:-}" || ! -w "${HOME:-}" ]]; then
    HOME="$(getent passwd "$(id -u)" | cut -d: -f6)"
    [[ -n "$HOME" && -w "$HOME" ]] || HOME="/tmp/rdmaemu-home-$(id -u)"
    mkdir -p "$HOME"
  fi
  export HOME
}
