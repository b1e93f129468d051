# shellcheck shell=bash
# Bazel's disk cache: what one checkout has compiled, another does not compile again. tools/test and
# tools/lib/build.sh source this file. RDMAEMU_BUILD_CACHE names another directory; an empty value
# turns the cache off.

cache_most_days=14 # entries that were not used for so long are removed
cache_most_mib=12288

# cache_options: sets the array cache to Bazel's options. Bazel does not see which version of a header
# or compiler it used, so each set of development packages has a cache of its own.
cache_options() {
  local home=${XDG_CACHE_HOME:-${HOME:+$HOME/.cache}} packages
  local root=${RDMAEMU_BUILD_CACHE-${home:+$home/rdmaemu/build}}
  cache=()
  [[ -n $root ]] || return 0
  packages=$(dpkg-query -W -f '${Section} ${Package} ${Version}\n' 2>/dev/null |
    grep -E '^([a-z]+/)?(lib)?devel ' | sha256sum | cut -c1-16)
  mkdir -p "$root/$packages" 2>/dev/null || {
    echo "note: builds are not cached, because $root cannot be written" >&2
    return 0
  }
  cache=("--disk_cache=$root/$packages")
  cache_prune "$root"
}

# cache_prune DIRECTORY: removes old entries, and everything if that is not enough.
cache_prune() {
  find "$1" -type f -atime "+$cache_most_days" -delete 2>/dev/null
  if (($(du -sm "$1" | cut -f1) > cache_most_mib)); then
    echo "note: $1 is larger than $cache_most_mib MiB and is emptied" >&2
    find "$1" -type f -delete
  fi
}
