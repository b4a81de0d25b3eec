#!/usr/bin/env bash
# Makes OCI images of the two gateways from a static program: a program, certificates of authorities, an empty
# folder for state, and a user that is not root. Nothing else is in them.
#
#   scripts/oci.sh PROGRAM ARCHITECTURE FOLDER
#
# PROGRAM is static, ARCHITECTURE is a name of the image specification, such as amd64. FOLDER gets the archives
# bentpipe-ground-VERSION-ARCHITECTURE.oci.tar and bentpipe-air-…. umoci makes them; root is needed, because
# files in an image have owners, and the air's program has capabilities.
set -euo pipefail
program=$(realpath "$1")
architecture=$2
mkdir -p "$3"
out=$(realpath "$3")
cd "$(dirname "$0")/.."

USER_ID=64500
STATE=/var/lib/bentpipe
AUTHORITIES=/etc/ssl/certs/ca-certificates.crt
CAPABILITIES=cap_net_admin,cap_net_raw,cap_net_bind_service=ep

version=$(sed -n '/^\[workspace.package\]/,/^$/s/^version = "\(.*\)"/\1/p' Cargo.toml)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
created=$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

install -d -m 700 -o $USER_ID -g $USER_ID "$work/state"
cp "$AUTHORITIES" "$work/authorities"

insert() {
    touch -d "@$epoch" "$2"
    umoci insert --history.created "$created" --image "$1" "$2" "$3"
}

for gateway in ground air; do
    layout=$work/$gateway
    image=$layout:$version
    install -m 755 "$program" "$work/bentpipe"
    # A user that is not root gets no other capabilities in a container.
    [ $gateway = ground ] || setcap $CAPABILITIES "$work/bentpipe"
    umoci init --layout "$layout"
    umoci new --image "$image"
    insert "$image" "$work/authorities" $AUTHORITIES
    insert "$image" "$work/state" $STATE
    insert "$image" "$work/bentpipe" /bentpipe
    umoci config --image "$image" --history.created "$created" --created "$created" --os linux \
        --architecture "$architecture" --config.user $USER_ID:$USER_ID --config.workingdir $STATE \
        --config.volume $STATE --config.stopsignal SIGTERM --config.label \
        "org.opencontainers.image.version=$version" --config.entrypoint /bentpipe \
        --config.entrypoint $gateway --config.entrypoint --config \
        --config.entrypoint "/etc/bentpipe/$gateway.toml"
    umoci gc --layout "$layout"
    tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner -C "$layout" \
        -cf "$out/bentpipe-$gateway-$version-$architecture.oci.tar" .
done
