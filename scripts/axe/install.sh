#!/bin/sh
# Writes axe-core 4.4 (MPL-2.0), which looks for faults of accessibility in pages, to axe.js in the given
# folder. Only a test uses it. It comes from axe-core-python (PyPI), at the version and hash of the lock file.
set -eu

folder=$1
here=$(cd "$(dirname "$0")" && pwd)
stamp="$folder/installed"
if [ -s "$folder/axe.js" ] && cmp -s "$here/requirements.txt" "$stamp"; then
    exit 0
fi
printf 'setup: fetching axe-core, which looks for faults of accessibility, into %s\n' "$folder"
mkdir -p "$folder"
python3 -m venv --clear "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
    -r "$here/requirements.txt"
cp "$folder"/venv/lib/python3*/site-packages/axe_core_python/axe.min.js "$folder/axe.js.part"
mv "$folder/axe.js.part" "$folder/axe.js"
rm -r "$folder/venv"
cp "$here/requirements.txt" "$stamp"
