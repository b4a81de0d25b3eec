#!/bin/sh
# Installs a Debian package of `make dist` on a copy of this system, uses it, and removes it. Needs root and
# overlay file systems. Nothing outside a mount namespace changes.
#
#   scripts/test-package.sh target/dist/bentpipe_VERSION-1_amd64.deb
set -eu

deb=$(realpath "$1")
if [ "${2:-}" != inside ]; then
    exec unshare --mount --net --pid --fork --kill-child "$0" "$deb" inside
fi

fail() { printf 'test-package: %s\n' "$*" >&2; exit 1; }

# A copy of the system: what is written goes to memory.
mount -t tmpfs tmpfs /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
mount -t proc proc /mnt/root/proc
mount -t tmpfs tmpfs /mnt/root/tmp
mount -t tmpfs tmpfs /mnt/root/run
mount --bind /dev /mnt/root/dev
cp "$deb" /mnt/root/tmp/package.deb
on() { chroot /mnt/root sh -euc "$1"; }

ip link set lo up
on 'dpkg -i /tmp/package.deb' > /dev/null
on 'bentpipe --version' | grep -q '^bentpipe [0-9.]*' || fail "the program does not run"
on 'test "$(stat -c "%U %a" /usr/bin/bentpipe)" = "root 755"' || fail "the program's owner or mode is wrong"
for unit in bentpipe-air.service bentpipe-ground.service bentpipe-preload.service bentpipe-preload.timer; do
    on "test -f /usr/lib/systemd/system/$unit -o -f /lib/systemd/system/$unit" || fail "no $unit"
done
on 'test -f /usr/lib/systemd/user/bentpipe-probe.service' || fail "no unit of the probe"
# Warnings about other units of this system do not count.
on 'systemd-analyze verify bentpipe-air.service bentpipe-ground.service 2>&1' | grep bentpipe &&
    fail "systemd does not accept the units"
for unit in air ground; do
    on "systemctl is-enabled bentpipe-$unit" 2>/dev/null | grep -qx disabled ||
        fail "bentpipe-$unit is enabled before there is a configuration"
done
on 'test -f /usr/share/man/man1/bentpipe.1.gz -a -f /usr/share/man/man1/bentpipe-air.1.gz' || fail "no man page"
on 'bash -c "source /usr/share/bash-completion/completions/bentpipe && complete -p bentpipe"' > /dev/null ||
    fail "bash does not accept the completions"
on 'ls /usr/share/doc/bentpipe/examples/aircraft/air.toml /usr/share/doc/bentpipe/copyright' > /dev/null

# Both gateways on one host: the line of the one sets up the other.
line=$(on 'bentpipe init ground --name boat-1 --address 127.0.0.1' 2>/tmp/said) ||
    fail "init ground: $(cat /tmp/said)"
on 'test "$(stat -c "%U %a" /etc/bentpipe/ground.key)" = "root 600"' || fail "others can read the key"
on 'bentpipe ground --config /etc/bentpipe/ground.toml' 2>/mnt/ground.log &
until grep -q serving /mnt/ground.log; do
    kill -0 $! || fail "the ground does not run: $(cat /mnt/ground.log)"
    sleep 0.1
done
on "bentpipe init air '$line'" > /mnt/air.log 2>&1 || fail "init air: $(cat /mnt/air.log)"
grep -q 'The link is up after' /mnt/air.log || fail "no link: $(cat /mnt/air.log)"
on 'test "$(stat -c "%U %a" /etc/bentpipe/air.key)" = "root 600"' || fail "others can read the key"
on 'bentpipe check /etc/bentpipe/air.toml /etc/bentpipe/ground.toml' > /dev/null || fail "the pair has faults"

# Installing it again keeps the configuration; removing it keeps what the operator made.
before=$(on 'cat /etc/bentpipe/*')
on 'dpkg -i /tmp/package.deb' > /dev/null
on 'dpkg -r bentpipe' > /dev/null
on 'test ! -e /usr/bin/bentpipe' || fail "the program was not removed"
on 'dpkg -P bentpipe' > /dev/null
[ "$before" = "$(on 'cat /etc/bentpipe/*')" ] || fail "keys or settings were removed"
echo "test-package: good: $(basename "$deb")"
