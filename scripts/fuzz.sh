#!/usr/bin/env bash
# Fuzzes the parsers with libFuzzer, one target after the other: scripts/fuzz.sh [SECONDS [TARGET…]].
# The default is 60 seconds each and all targets. First installs nightly Rust and cargo-fuzz with rustup
# and cargo, if they are missing. A target starts from its inputs in fuzz/seeds, and new ones stay in
# fuzz/corpus. `scripts/fuzz.sh keep [TARGET…]` minimises those and packs them into fuzz/seeds. If an input
# breaks a target, the script prints the command that runs it again, keeps the input in fuzz/artifacts, and
# fails.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

seconds=${1:-60}
shift || true
case $seconds in
keep) ;;
'' | *[!0-9]*)
    echo "scripts/fuzz.sh [SECONDS | keep] [TARGET…]: $seconds is not a number of seconds" >&2
    exit 2
    ;;
esac

# A longer input costs more and finds nothing that a shorter one of the same parser does not. The memory
# limit includes AddressSanitizer's own.
longest_bytes=16384
memory_mb=2048

scripts/setup.sh
if ! command -v c++ >/dev/null 2>&1; then
    echo "fuzz: libFuzzer needs a C++ compiler: install g++ or clang" >&2
    exit 1
fi
if ! cargo +nightly --version >/dev/null 2>&1; then
    echo "fuzz: installing the nightly toolchain"
    rustup toolchain install nightly --profile minimal
fi
if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "fuzz: installing cargo-fuzz from the registry"
    cargo install --locked --quiet cargo-fuzz
fi

targets=("$@")
if [ ${#targets[@]} = 0 ]; then
    mapfile -t targets < <(cargo +nightly fuzz list)
fi
cargo +nightly fuzz build

if [ "$seconds" = keep ]; then
    for target in "${targets[@]}"; do
        [ -d "fuzz/corpus/$target" ] || continue
        cargo +nightly fuzz cmin "$target" -- -rss_limit_mb="$memory_mb" -max_len="$longest_bytes"
        # The same inputs always make the same archive.
        tar --create --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner \
            --directory="fuzz/corpus/$target" . | gzip --no-name -9 >"fuzz/seeds/$target.tar.gz"
        echo "fuzz: $target: $(find "fuzz/corpus/$target" -type f | wc -l) inputs in fuzz/seeds/$target.tar.gz"
    done
    exit 0
fi

broken=()
for target in "${targets[@]}"; do
    printf '\n== %s, %s s\n' "$target" "$seconds"
    mkdir -p "fuzz/corpus/$target"
    if [ -f "fuzz/seeds/$target.tar.gz" ]; then
        tar --extract --gzip --skip-old-files --directory="fuzz/corpus/$target" --file="fuzz/seeds/$target.tar.gz"
    fi
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb="$memory_mb" \
        -max_len="$longest_bytes" -timeout=10 -print_final_stats=1 || broken+=("$target")
done
if [ ${#broken[@]} != 0 ]; then
    printf '\nfuzz: broken: %s\n' "${broken[*]}" >&2
    exit 1
fi
printf '\nfuzz: %s targets, nothing broke\n' "${#targets[@]}"
