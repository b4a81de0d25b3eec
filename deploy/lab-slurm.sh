#!/bin/sh
# The published studies' experiments as a Slurm array: a shard for each task, then a job that merges the
# shards and writes the report.
#
#   deploy/lab-slurm.sh RESULTS [SHARDS] [OPTION]...     for example: deploy/lab-slurm.sh ~/papers 8 --quick
#
# RESULTS is a folder that all nodes see. Each task needs two cores of its own: the emulator delivers
# packets to the millisecond and rejects measurements of a busy node. It needs /dev/net/tun and user
# namespaces, not root. The same command continues a stopped run. BENTPIPE_LAB names the program [bentpipe-lab].
# BENTPIPE_VEGA names the bundle that draws figures [target/vega/vega.js, from `scripts/setup.sh vega`].
# Without it the report has tables only.
set -eu

usage() {
    echo "usage: $0 RESULTS [SHARDS] [OPTION of bentpipe-lab papers]..." >&2
    exit 2
}

[ $# -ge 1 ] || usage
results=$1
shift
shards=8
case ${1:-} in
'' | -*) ;;
*[!0-9]*) usage ;;
*)
    shards=$1
    shift
    ;;
esac
program=${BENTPIPE_LAB:-bentpipe-lab}

if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
    exec "$program" papers "$@" --shard "$SLURM_ARRAY_TASK_ID/$shards" \
        "$results/shard-$SLURM_ARRAY_TASK_ID"
fi

if [ -n "${BENTPIPE_MERGE:-}" ]; then
    "$program" papers --merge "$results/whole" "$results"/shard-*
    exec "$program" report "$results/whole" --vega "${BENTPIPE_VEGA:-target/vega/vega.js}" \
        --out "$results/report.html"
fi

mkdir -p "$results"
array=$(sbatch --parsable --job-name=bentpipe-lab --array="1-$shards" --cpus-per-task=2 --mem=4G \
    --output="$results/log-%a.txt" "$0" "$results" "$shards" "$@")
sbatch --job-name=bentpipe-report --dependency="afterok:$array" --output="$results/log-report.txt" \
    --export=ALL,BENTPIPE_MERGE=1 "$0" "$results"
