#!/usr/bin/env bash
# Installs library, header and pkg-config file: install.sh PREFIX. The library is the release
# build: cargo build --release -p landfall-c
set -euo pipefail
prefix=${1:?usage: install.sh PREFIX}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
built=${CARGO_TARGET_DIR:-$here/../../target}/release
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -1)
install -d "$prefix/lib/pkgconfig" "$prefix/include"
install -m 755 "$built/liblandfall_c.so" "$prefix/lib/"
install -m 644 "$built/liblandfall_c.a" "$prefix/lib/"
install -m 644 "$here/include/landfall.h" "$prefix/include/"
sed "s|@PREFIX@|$prefix|; s|@VERSION@|$version|" "$here/landfall.pc.in" \
    > "$prefix/lib/pkgconfig/landfall.pc"
