#!/bin/sh
# Installs the tests' independent MASQUE client from PyPI into the given folder, at the versions and hashes
# of the lock file. (To renew it: pip-compile --generate-hashes
# --strip-extras --no-header --no-annotate requirements.in.)
set -eu

folder=$1
here=$(cd "$(dirname "$0")" && pwd)
stamp="$folder/installed"
if cmp -s "$here/requirements.txt" "$stamp"; then
    exit 0
fi
printf 'setup: installing the MASQUE client of the tests (aioquic, from PyPI) into %s\n' "$folder"
python3 -m venv --clear "$folder"
"$folder/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: --require-hashes \
    -r "$here/requirements.txt"
cp "$here/requirements.txt" "$stamp"
