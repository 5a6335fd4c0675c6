#!/usr/bin/env bash
# Packages of a release build: the tool, the library that `landfall run` preloads, pages for man,
# completions, an example for systemd, and licences.
#
#     packaging/build.sh deb [FOLDER]      landfall_VERSION_ARCHITECTURE.deb
#     packaging/build.sh rpm [FOLDER]      landfall-VERSION.ARCHITECTURE.rpm
#     packaging/build.sh all [FOLDER]      both
#     packaging/build.sh wheel [FOLDER]    landfall-VERSION-py3-none-manylinux_….whl: the Python module
#
# FOLDER is where they go: target/packages, unless it is said. It expects
# `cargo build --release -p landfall-cli -p landfall-preload`, and dpkg-deb or rpmbuild; for the
# wheel `cargo build --release -p landfall-c`, and Python 3.11.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
umask 022

main() {
    local kind=${1:-all} out=${2:-}
    [[ $kind == deb || $kind == rpm || $kind == all || $kind == wheel ]] || die "say deb, rpm, all or wheel"
    target=$(cargo metadata --locked --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
    release=$target/release
    version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml | head -n 1)
    # The same sources give the same package.
    export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
    out=${out:-$target/packages}
    mkdir -p "$out"
    out=$(cd "$out" && pwd)
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    if [[ $kind == wheel ]]; then
        wheel "$out"
        return
    fi
    [[ -x $release/landfall && -e $release/liblandfall_preload.so ]] ||
        die "there is no release build: cargo build --release -p landfall-cli -p landfall-preload"
    [[ $kind == rpm ]] || deb "$out"
    [[ $kind == deb ]] || rpm_package "$out"
}

wheel() {
    local library=$work/liblandfall_c.so name
    [[ -e $release/liblandfall_c.so ]] || die "there is no release build: cargo build --release -p landfall-c"
    strip --strip-unneeded -o "$library" "$release/liblandfall_c.so"
    third_parties landfall-c >"$work/third-party.txt"
    name=$(python3 crates/capi/python/backend.py "$1" "$library" "$work/third-party.txt")
    echo "$1/$name"
}

die() { echo "packaging: $*" >&2; exit 1; }

# stage FOLDER LIBRARIES: the files as they are installed, the library in the folder LIBRARIES.
stage() {
    local root=$1 libraries=$2 page
    local documents=$root/usr/share/doc/landfall
    install -d "$root/usr/bin" "$root$libraries" "$root/usr/share/man/man1" "$documents/examples"
    install -m 755 "$release/landfall" "$root/usr/bin/landfall"
    install -m 644 "$release/liblandfall_preload.so" "$root$libraries/liblandfall_preload.so"
    strip --strip-unneeded "$root/usr/bin/landfall" "$root$libraries/liblandfall_preload.so"
    "$release/landfall" man --out "$root/usr/share/man/man1" >/dev/null
    for page in "$root"/usr/share/man/man1/*.1; do gzip -9n "$page"; done
    completions bash "$root/usr/share/bash-completion/completions/landfall"
    completions zsh "$root/usr/share/zsh/vendor-completions/_landfall"
    completions fish "$root/usr/share/fish/vendor_completions.d/landfall.fish"
    install -m 644 packaging/systemd/landfall.conf packaging/systemd/landfall-carry.service "$documents/examples"
    install -m 644 LICENSE-MIT LICENSE-APACHE docs/sockets.md docs/operate.md "$documents"
    third_parties landfall-cli landfall-preload >"$documents/third-party.txt"
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
}

completions() {
    install -d "$(dirname "$2")"
    "$release/landfall" completions "$1" >"$2"
}

# What is built into these packages: names, versions and licences.
third_parties() {
    echo "Built into what is installed, with their licences:"
    echo
    cargo tree --locked --edges normal --prefix none --format '{p}  {l}' "${@/#/--package=}" |
        sed 's/ (\*)$//; s/ ([^)]*)//' | sort -u
}

# The oldest C library that has all that the two call.
oldest_glibc() {
    objdump -T "$release/landfall" "$release/liblandfall_preload.so" |
        grep -o 'GLIBC_[0-9][0-9.]*' | sort -uV | tail -n 1 | sed 's/GLIBC_//'
}

deb() {
    local out=$1 root=$work/deb architecture libraries name
    command -v dpkg-deb >/dev/null || die "dpkg-deb is missing"
    architecture=$(dpkg --print-architecture)
    libraries=/usr/lib/$(multiarch)
    stage "$root" "$libraries"
    copyright >"$root/usr/share/doc/landfall/copyright"
    install -d "$root/DEBIAN"
    cat >"$root/DEBIAN/control" <<END
Package: landfall
Version: $version
Architecture: $architecture
Maintainer: The Landfall engineers <landfall@localhost>
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f 1)
Depends: libc6 (>= $(oldest_glibc)), libgcc-s1
Section: net
Priority: optional
Homepage: https://github.com/landfall-rs/landfall
Description: unmodified programs over shared memory, and protocols of placed data
 A library to preload makes TCP connections within a host go through shared memory,
 and between hosts by the Scheduled Transfer Protocol or by queue pairs. The tool
 starts programs under it, shows their connections, sends files, serves block
 devices, and measures.
END
    (cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
    find "$root/DEBIAN" -exec touch --date="@$SOURCE_DATE_EPOCH" {} +
    name=landfall_${version}_$architecture.deb
    dpkg-deb --root-owner-group --build "$root" "$out/$name" >/dev/null
    echo "$out/$name"
}

# The folder of this machine's kind of processor, as Debian calls it.
multiarch() {
    if command -v dpkg-architecture >/dev/null; then
        dpkg-architecture -qDEB_HOST_MULTIARCH
    else
        echo "$(uname -m)-linux-gnu"
    fi
}

copyright() {
    echo "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/"
    echo "Upstream-Name: landfall"
    echo "Source: https://github.com/landfall-rs/landfall"
    echo
    echo "Files: *"
    echo "Copyright: The Landfall engineers"
    echo "License: MIT or Apache-2.0"
    echo "Comment: both texts are beside this file; third-party.txt has what is built in."
    echo
    echo "License: MIT"
    sed 's/^$/./; s/^/ /' LICENSE-MIT
    echo
    echo "License: Apache-2.0"
    echo " The text is in /usr/share/doc/landfall/LICENSE-APACHE."
}

rpm_package() {
    local out=$1 root=$work/rpm-root libraries=/usr/lib64 top=$work/rpm built
    command -v rpmbuild >/dev/null || die "rpmbuild is missing (on Debian: apt-get install rpm)"
    [[ $(getconf LONG_BIT) == 64 ]] || libraries=/usr/lib
    stage "$root" "$libraries"
    install -d "$top"
    {
        cat <<END
Name: landfall
Version: $version
Release: 1
Summary: Unmodified programs over shared memory, and protocols of placed data
License: MIT OR Apache-2.0
URL: https://github.com/landfall-rs/landfall
# The tool finds the library by its place.
AutoProv: no
%description
A library to preload makes TCP connections within a host go through shared memory,
and between hosts by the Scheduled Transfer Protocol or by queue pairs. The tool
starts programs under it, shows their connections, sends files, serves block
devices, and measures.
%install
cp -a $root/. %{buildroot}
%files
END
        (cd "$root" && find . -type f | sed 's/^\.//' | LC_ALL=C sort)
    } >"$top/landfall.spec"
    rpmbuild -bb --quiet --define "_topdir $top" --define "debug_package %{nil}" \
        --define "__os_install_post %{nil}" --define "_build_id_links none" \
        --define "use_source_date_epoch_as_buildtime 1" --define "clamp_mtime_to_source_date_epoch 1" \
        "$top/landfall.spec"
    for built in "$top"/RPMS/*/*.rpm; do
        cp "$built" "$out"
        echo "$out/$(basename "$built")"
    done
}

main "$@"
