#!/usr/bin/env bash
# Builds a package for OpenWrt's opkg (releases up to 24.10) from a static program:
#
#   scripts/ipk.sh PROGRAM MACHINE VERSION OUT       MACHINE as in `uname -m`: x86_64, aarch64, armv7l
#
# OpenWrt has a name for each processor, and the static program runs on all of a family. So the package is for all
# names, and refuses to be installed on a machine of another family.
set -euo pipefail
program=$(realpath "$1") machine=$2 version=$3 out=$(realpath "$4")
cd "$(dirname "$0")/.."

umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/data/usr/bin" "$work/data/etc/bentpipe" "$work/control"
cp -a deploy/openwrt/. "$work/data/"
cp "$program" "$work/data/usr/bin/bentpipe"
# Keys are in this folder.
chmod 700 "$work/data/etc/bentpipe"
chmod 755 "$work/data/usr/bin/bentpipe" "$work/data/etc/init.d/bentpipe"
chmod 644 "$work/data/etc/config/bentpipe" "$work/data/usr/lib/bentpipe/uci-to-toml"

cat > "$work/control/control" <<CONTROL
Package: bentpipe
Version: $version-1
Depends: kmod-nft-tproxy, kmod-nft-fib
License: MIT OR Apache-2.0
Section: net
Architecture: all
Installed-Size: $(du -sb "$work/data" | cut -f1)
Description: Gateway for Internet access over satellites and radio
 Ends TCP at both sides of a satellite or radio link. Clients need no software.
CONTROL
printf '%s\n' /etc/config/bentpipe /etc/bentpipe/ > "$work/control/conffiles"
cat > "$work/control/preinst" <<PREINST
#!/bin/sh
[ -n "\$IPKG_INSTROOT" ] || [ "\$(uname -m)" = $machine ] || {
	echo "bentpipe: this package is for $machine, and this machine is \$(uname -m)" >&2
	exit 1
}
PREINST
# Stops before its program is gone. An upgrade starts it again.
cat > "$work/control/prerm" <<'PRERM'
#!/bin/sh
[ -z "$IPKG_INSTROOT" ] || exit 0
/etc/init.d/bentpipe stop
[ "$PKG_UPGRADE" = 1 ] || /etc/init.d/bentpipe disable
PRERM
# A new package is not enabled: there is no configuration yet.
cat > "$work/control/postinst" <<'POSTINST'
#!/bin/sh
[ -z "$IPKG_INSTROOT" ] || exit 0
! /etc/init.d/bentpipe enabled || /etc/init.d/bentpipe start
POSTINST
chmod 755 "$work/control/preinst" "$work/control/prerm" "$work/control/postinst"

pack() { tar -C "$1" --sort=name --mode=u+rwX,go-w --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -cf - "${@:2}" | gzip -9n; }
pack "$work/control" . > "$work/control.tar.gz"
pack "$work/data" . > "$work/data.tar.gz"
echo 2.0 > "$work/debian-binary"
pack "$work" ./debian-binary ./control.tar.gz ./data.tar.gz > "$out/bentpipe_$version-1_$machine.ipk"
