# shellcheck shell=bash
# A home directory that can be written to. Sourced by tools/test and tools/softroce: a service or a
# test has none, and Bazel and caches want one.

# home_ensure: sets and exports HOME.
home_ensure() {
  if [[ -z "${HOME:-}" || ! -w "${HOME:-}" ]]; then
    HOME="$(getent passwd "$(id -u)" | cut -d: -f6)"
    [[ -n "$HOME" && -w "$HOME" ]] || HOME="/tmp/rdmaemu-home-$(id -u)"
    mkdir -p "$HOME"
  fi
  export HOME
}
