#!/bin/sh
# Writes the bundle of Vega, Vega-Lite and Vega-Embed (BSD-3-Clause), which draws the figures of reports,
# to vega.js in the given folder. It comes from vl-convert-python (PyPI), at the version and hashes of the
# lock file. (To renew it: pip-compile --generate-hashes --strip-extras --no-header --no-annotate
# requirements.in.)
set -eu

folder=$1
here=$(cd "$(dirname "$0")" && pwd)
stamp="$folder/installed"
if [ -s "$folder/vega.js" ] && cmp -s "$here/requirements.txt" "$stamp"; then
    exit 0
fi
printf 'setup: fetching the bundle of Vega, which draws the figures of reports, into %s\n' "$folder"
mkdir -p "$folder"
python3 -m venv --clear "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
    -r "$here/requirements.txt"
"$folder/venv/bin/python" -c \
    'import sys, vl_convert; sys.stdout.write(vl_convert.javascript_bundle())' >"$folder/vega.js.part"
mv "$folder/vega.js.part" "$folder/vega.js"
# Only the bundle is needed; the rest has 100 times its size.
rm -r "$folder/venv"
cp "$here/requirements.txt" "$stamp"
