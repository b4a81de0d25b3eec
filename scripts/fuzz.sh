#!/usr/bin/env bash
# Fuzzes the parsers with libFuzzer, one target after the other: scripts/fuzz.sh [SECONDS [TARGET…]].
# The default is 60 seconds each and all targets. First installs nightly Rust and cargo-fuzz with rustup
# and cargo, if they are missing. Corpora stay in fuzz/corpus. If an input breaks a target, the script
# prints the command that runs it again, keeps the input in fuzz/artifacts, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"

seconds=${1:-60}
shift || true
case $seconds in
'' | *[!0-9]*)
    echo "scripts/fuzz.sh [SECONDS [TARGET…]]; $seconds is no number of seconds" >&2
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
broken=()
for target in "${targets[@]}"; do
    printf '\n== %s, %s s\n' "$target" "$seconds"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -rss_limit_mb="$memory_mb" \
        -max_len="$longest_bytes" -timeout=10 -print_final_stats=1 || broken+=("$target")
done
if [ ${#broken[@]} != 0 ]; then
    printf '\nfuzz: broken: %s\n' "${broken[*]}" >&2
    exit 1
fi
printf '\nfuzz: %s targets, nothing broke\n' "${#targets[@]}"
