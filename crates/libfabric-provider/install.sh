#!/usr/bin/env bash
# Puts the provider where libfabric is told to look (FI_PROVIDER_PATH):
#
#     bash crates/libfabric-provider/install.sh FOLDER
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

folder=${1:?a folder for liblandfall-fi.so}
library=${CARGO_TARGET_DIR:-target}/release/liblandfall_fi.so
[[ -f $library ]] || {
    echo "build it first: cargo build --release -p landfall-libfabric" >&2
    exit 1
}
mkdir -p "$folder"
# libfabric loads whatever ends in `fi.so`; this is the name that its providers have.
install -m 755 "$library" "$folder/liblandfall-fi.so"
