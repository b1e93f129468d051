#!/usr/bin/env bash
# Creates a target's archive: pack.sh NAME DIRECTORY packs the files of DIRECTORY into
# tests/fuzz/corpus/NAME.tar.gz. The files are named by their SHA-1, as libFuzzer does. The same
# files give the same bytes.
set -euo pipefail
name="${1:?usage: pack.sh NAME DIRECTORY}" directory="${2:?usage: pack.sh NAME DIRECTORY}"
archive="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/corpus/$name.tar.gz"
find "$directory" -maxdepth 1 -type f -printf '%f\n' | grep -E '^[0-9a-f]{40}$' | LC_ALL=C sort |
  tar -c --format=ustar --owner=0 --group=0 --numeric-owner --mode=0644 --mtime=@0 \
    -C "$directory" -T - | gzip -9n >"$archive.new"
mv "$archive.new" "$archive"
tar -tzf "$archive" | wc -l
