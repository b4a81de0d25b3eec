#!/usr/bin/env bash
# Runs every property test from fresh seeds: `scripts/explore.sh [ROUNDS]`, by default 10. A failing case
# is appended to a *proptest-regressions* file. Commit that file with the fix: every later run of the tests
# starts with the case. `PROPTEST_RNG_SEED=… cargo test` repeats a whole round.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$HOME/.cargo/bin:$PATH"
rounds=${1:-10}

# The name of each function inside a `proptest!` block. The filter of libtest takes names alone.
mapfile -t names < <(
    find crates -name '*.rs' -exec awk '
        /^ *proptest! \{/ { match($0, /^ */); indent = RLENGTH; inside = 1; next }
        inside && /^ *\}/ { match($0, /^ */); if (RLENGTH == indent) inside = 0 }
        inside && match($0, /^ *fn [a-z0-9_]+\(/) && RLENGTH > 0 {
            match($0, /^ */); if (RLENGTH != indent + 4) next
            sub(/^ *fn /, ""); sub(/\(.*/, ""); print
        }' {} + | sort -u
)
[ ${#names[@]} -gt 0 ] || { echo "found no property tests: has their layout changed?" >&2; exit 1; }
echo "${#names[@]} property tests, $rounds rounds"

failed=0
for ((round = 1; round <= rounds; round++)); do
    PROPTEST_RNG_SEED=$(od -An -N8 -tu8 /dev/urandom | tr -d ' ')
    export PROPTEST_RNG_SEED
    echo "== round $round: PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED"
    ${CARGO:-cargo} test --workspace --lib --bins --tests --no-fail-fast --quiet -- "${names[@]}" || failed=1
done

recorded=$(git status --porcelain --untracked-files=all | grep proptest-regressions || true)
[ -z "$recorded" ] || printf 'Recorded, to be committed with the repair:\n%s\n' "$recorded"
exit "$failed"
