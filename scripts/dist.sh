#!/usr/bin/env bash
# Builds a release into target/dist: static programs, packages for Debian and OpenWrt, images of containers, the
# list of their parts, checksums.
#
#   scripts/dist.sh [TARGET...]     Rust targets of the gateways [x86_64, aarch64 and armv7 on musl]
#
# The lab is built for x86_64, and only if no target is named. What a target needs is installed, and said. A target whose compiler
# cannot be had is left out, and said; x86_64 has to succeed.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

X86=x86_64-unknown-linux-musl
TARGETS=("$@")
[ $# -gt 0 ] || TARGETS=("$X86" aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf)

say() { printf 'dist: %s\n' "$*"; }

version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
if [ -z "${BENTPIPE_COMMIT:-}" ] && git rev-parse --git-dir >/dev/null 2>&1; then
    BENTPIPE_COMMIT=$(git describe --always --dirty --exclude='*' --abbrev=12)
    SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
    export SOURCE_DATE_EPOCH
fi
export BENTPIPE_COMMIT="${BENTPIPE_COMMIT:-}"

# The build has a folder of its own: target/dist holds nothing but the release.
build=$PWD/target/dist-build
out=$PWD/target/dist
export CARGO_TARGET_DIR=$build CARGO_INCREMENTAL=0
# The probe's store needs neither full-text search nor JSON nor loadable extensions of SQLite.
LIBSQLITE3_FLAGS="-USQLITE_ENABLE_FTS3 -USQLITE_ENABLE_FTS3_PARENTHESIS -USQLITE_ENABLE_FTS5"
LIBSQLITE3_FLAGS+=" -USQLITE_ENABLE_RTREE -USQLITE_ENABLE_STAT4 -USQLITE_ENABLE_DBSTAT_VTAB -USQLITE_SOUNDEX"
LIBSQLITE3_FLAGS+=" -USQLITE_ENABLE_LOAD_EXTENSION -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_OMIT_JSON"
export LIBSQLITE3_FLAGS

# The C compiler that builds and links for a target.
compiler() {
    case $1 in
    "$X86") echo musl-gcc ;;
    aarch64-*) echo aarch64-linux-gnu-gcc ;;
    armv7-*) echo arm-linux-gnueabihf-gcc ;;
    *) say "no compiler is known for $1" >&2; return 1 ;;
    esac
}

# Sets the environment of a build for a target.
prepare() {
    local cc under upper
    # Errors do not end a function that is a condition.
    cc=$(compiler "$1") || return
    scripts/setup.sh "dist-${1%%-*}" || return
    command -v "$cc" >/dev/null || return
    rustup target list --installed | grep -qx "$1" || rustup target add "$1" || return
    under=${1//-/_}
    upper=${under^^}
    export "CC_$under=$cc"
    # No exception and no panic passes through C.
    local flags="-fno-asynchronous-unwind-tables -fno-unwind-tables" rust=""
    # Rust's own start files and C library for musl; the compiler only drives the linker. musl-gcc would
    # name a dynamic loader that is not there, so the system's compiler links for x86_64. Calls of libgcc's
    # outlined atomics would be unresolved.
    case $1 in
    # Relocations of a position-independent program take 0.6 MB less as RELR, which musl reads.
    "$X86") rust="-C link-arg=-Wl,-z,pack-relative-relocs" ;;
    aarch64-*) flags+=" -mno-outline-atomics"; export "CARGO_TARGET_${upper}_LINKER=$cc" ;;
    *) export "CARGO_TARGET_${upper}_LINKER=$cc" ;;
    esac
    export "CFLAGS_$under=$flags" "CARGO_TARGET_${upper}_RUSTFLAGS=$rust"
}

rm -rf "$out"
mkdir -p "$out"
built=()
for target in "${TARGETS[@]}"; do
    if ! prepare "$target"; then
        [ "$target" != "$X86" ] || exit 1
        say "SKIPPED: $target: its compiler or its standard library cannot be had here"
        continue
    fi
    say "building the gateways for $target"
    cargo build --locked --profile dist -p bentpipe --target "$target"
    # A static program names no loader.
    if readelf -l "$build/$target/dist/bentpipe" | grep -q INTERP; then
        say "the program for $target is not static"
        exit 1
    fi
    cp "$build/$target/dist/bentpipe" "$out/bentpipe-$version-${target%%-*}"
    built+=("$target")
done
if [ $# = 0 ]; then
    say "building the lab for $X86"
    cargo build --locked --profile dist -p bentpipe-lab-command --target "$X86"
    cp "$build/$X86/dist/bentpipe-lab" "$out/bentpipe-lab-$version-x86_64"
fi

say "man pages and completions"
pages=$build/pages
rm -rf "$pages"
mkdir -p "$pages"
program=$out/bentpipe-$version-x86_64
[ -x "$program" ] || { say "SKIPPED: packages need the program for x86_64"; exit 0; }
"$program" man "$pages"
# The lab has man pages of its own.
rm -f "$pages"/bentpipe-{lab,demo,report}.1
gzip -9n "$pages"/*.1
for shell in bash zsh fish; do
    "$program" completions "$shell" > "$pages/bentpipe.$shell"
done

scripts/setup.sh dist-deb
for target in "${built[@]}"; do
    say "package for $target"
    cargo deb --quiet --no-build --no-strip --locked -p bentpipe --profile dist --target "$target" --output "$out"
done

for target in "${built[@]}"; do
    machine=${target%%-*}
    [ "$machine" != armv7 ] || machine=armv7l
    say "package of OpenWrt for $machine"
    scripts/ipk.sh "$out/bentpipe-$version-${target%%-*}" "$machine" "$version" "$out"
done

say "images of containers"
if [ "$(id -u)" != 0 ]; then
    say "SKIPPED: images of containers: only root can make them"
elif scripts/setup.sh dist-oci; then
    for target in "${built[@]}"; do
        case ${target%%-*} in
        x86_64) architecture=amd64 ;;
        aarch64) architecture=arm64 ;;
        *) say "SKIPPED: no image for $target"; continue ;;
        esac
        scripts/oci.sh "$out/bentpipe-$version-${target%%-*}" $architecture "$out" >/dev/null
    done
else
    say "SKIPPED: images of containers: umoci cannot be had here"
fi

say "the list of parts"
if scripts/setup.sh dist-cyclonedx; then
    cargo cyclonedx --quiet --format json --describe binaries --target "$X86" \
        --manifest-path crates/bentpipe/Cargo.toml
    mv crates/bentpipe/bentpipe_bin.cdx.json "$out/bentpipe-$version.cdx.json"
    find crates -name '*.cdx.json' -delete
else
    say "SKIPPED: the list of parts: cargo-cyclonedx cannot be had here"
fi

(cd "$out" && sha256sum -- * > SHA256SUMS)
say "ready:"
(cd "$out" && ls -l)
