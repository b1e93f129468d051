# shellcheck shell=bash
# Makes the tarball and the Debian packages. tools/package sources this file. Uses the variables
# root, work, out and version.
# shellcheck disable=SC2154

# make_tarball: the installed prefix, and the libraries that it takes from packages. The command and
# librdmaemu.so.1 look for them in lib/rdmaemu/private first.
make_tarball() {
  local name=rdmaemu-$version-x86_64 library
  cp -a "$work/prefix" "$work/$name"
  mkdir -p "$work/$name/lib/rdmaemu/private"
  library=$(ldd "$work/prefix/bin/rdmaemu" | awk '$1 ~ /^libisal/ {print $3}')
  [[ -n $library ]] || fail "bin/rdmaemu does not need libisal; mend tools/package.d/make.sh"
  install -m 644 "$(readlink -f "$library")" "$work/$name/lib/rdmaemu/private/libisal.so.2"
  install -m 644 /usr/share/doc/libisal2/copyright "$work/$name/share/doc/rdmaemu/copyright.libisal"
  install -m 644 "$root/LICENSE" "$work/$name/share/doc/rdmaemu/copyright"
  tar -C "$work" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -c \
    "$name" | gzip -9n >"$out/$name.tar.gz"
}

# control_of PACKAGE SECTION DEPENDS SUMMARY TEXT: writes the package's control file.
control_of() {
  local directory=$work/$1
  mkdir -p "$directory/DEBIAN"
  cat >"$directory/DEBIAN/control" <<TEXT
Package: $1
Version: $version
Architecture: amd64
Maintainer: rdmaemu maintainers <maintainers@rdmaemu.example>
Installed-Size: $(du -sk "$directory" | cut -f1)
Section: $2
Priority: optional
Depends: $3
Description: $4
$5
TEXT
}

# documents_of PACKAGE: the files that each package has in share/doc.
documents_of() {
  local documents=$work/$1/usr/share/doc/$1
  mkdir -p "$documents"
  {
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    printf '\nFiles: *\nCopyright: %s\nLicense: Expat\n' \
      "$(sed -n 's/^Copyright (c) //p' "$root/LICENSE")"
    sed -n '/^Permission/,$p' "$root/LICENSE" | sed 's/^$/./; s/^/ /'
  } >"$documents/copyright"
  printf 'rdmaemu (%s) unstable; urgency=medium\n\n  * See CHANGELOG.md of the source.\n\n -- %s  %s\n' \
    "$version" "rdmaemu maintainers <maintainers@rdmaemu.example>" \
    "$(date -u -R -d "@$SOURCE_DATE_EPOCH")" | gzip -9n >"$documents/changelog.gz"
}

# finish_deb PACKAGE: checksums, times and the file itself.
finish_deb() {
  local directory=$work/$1
  (cd "$directory" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  find "$directory/usr" -type f ! -path '*/usr/bin/*' ! -name run-pair -exec chmod 644 {} +
  chmod -R u+rwX,go+rX,go-w "$directory"
  dpkg-deb --root-owner-group --build "$directory" "$out/${1}_${version}_amd64.deb" >/dev/null
}

make_debs() {
  local usr=$work/rdmaemu/usr dev=$work/rdmaemu-dev/usr file
  mkdir -p "$usr" "$dev/lib/python3/dist-packages" "$dev/share/doc/rdmaemu-dev"
  cp -a "$work/prefix/." "$usr/"
  # The list of files serves `rdmaemu install`, which copies a whole prefix. A package has no such.
  rm "$usr/share/rdmaemu/files"
  mv "$usr/include" "$dev/"
  mv "$usr/lib/cmake" "$dev/lib/"
  mv "$usr/lib/pkgconfig" "$dev/share/" # all paths in it are relative to its place
  mv "$usr"/lib/python3/* "$dev/lib/python3/dist-packages/"
  rmdir "$usr/lib/python3"
  mv "$usr/share/doc/rdmaemu/examples" "$dev/share/doc/rdmaemu-dev/"
  gzip -9n "$usr"/share/man/man1/*.1
  for file in "$usr/bin/rdmaemu" "$usr"/lib/rdmaemu/*.so* "$usr"/lib/rdmaemu/layer/*.so*; do
    chmod u+w "$file"
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$file"
  done
  documents_of rdmaemu
  documents_of rdmaemu-dev
  control_of rdmaemu utils "libc6 (>= 2.35), libgcc-s1 (>= 3.0), libisal2, libstdc++6 (>= 11)" \
    "RDMA device made of software, for tests" \
    " Programs that use libibverbs and librdmacm run on it unmodified, without a
 NIC, a kernel module or root. Faults are injected by rules, time can be
 virtual, and each run can be traced, captured and repeated."
  control_of rdmaemu-dev devel "rdmaemu (= $version), libibverbs-dev, librdmacm-dev, python3" \
    "RDMA device made of software, for tests (development files)" \
    " Headers, pkg-config and CMake files and a Python package, for unit tests that
 open an emulated host in their own process, and examples with their tests."
  finish_deb rdmaemu
  finish_deb rdmaemu-dev
}
