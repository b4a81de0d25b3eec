# Four hosts, and the commands of the quick start on them. Runs in network, mount and process namespaces
# of its own, in an empty folder.
#
#   device ── br-lan (air) ── radio ── (ground) uplink ── server of example.org
#
# Each host has an /etc, a /run and a /sys of its own. In place of systemd there is a script that starts a unit's
# command and waits until it serves.
set -eu
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY
top=$PWD
mount -t tmpfs tmpfs /run
mkdir /run/netns bin
mount -t proc proc /proc

cat > bin/bentpipe <<END
#!/bin/sh
exec "$BENTPIPE" "\$@"
END
cat > bin/systemctl <<'END'
#!/bin/sh
for unit; do :; done
which=${unit#bentpipe-}; which=${which%.service}
case $1 in
cat) exit 0 ;;
is-active) test -e "/run/$unit" ;;
enable)
    bentpipe "$which" --config "/etc/bentpipe/$which.toml" >/dev/null 2>"/run/$unit.log" &
    for _ in $(seq 600); do
        grep -q 'serving\|intercepting' "/run/$unit.log" && { touch "/run/$unit"; exit 0; }
        kill -0 $! || break
        sleep 0.1
    done
    cat "/run/$unit.log" >&2
    exit 1 ;;
esac
END
chmod 755 bin/*
export PATH="$top/bin:$PATH" NO_COLOR=1

# Runs a script on a host: on HOST SCRIPT
on() { nsenter --net="/run/netns/$1" --mount="/proc/$(cat "$top/$1.pid")/ns/mnt" sh -euc "cd /; $2"; }

for host in server ground air device; do
    ip netns add $host
    ip -n $host link set lo up
done
ip link add radio netns air type veth peer name radio netns ground
ip link add lan0 netns air type veth peer name wlan0 netns device
# The tests run on their own machine, so these addresses are nobody's here.
ip -n ground addr add 203.0.113.1/24 dev radio
ip -n ground link set radio up
ip link add uplink netns ground type veth peer name uplink netns server
ip -n ground addr add 198.18.0.1/30 dev uplink
ip -n ground link set uplink up
ip -n ground route add default via 198.18.0.2
ip -n server addr add 198.18.0.2/30 dev uplink
ip -n server addr add 11.22.33.44/32 dev lo
ip -n server link set uplink up
ip -n air addr add 203.0.113.2/24 dev radio
ip -n air link set radio up
ip -n air link add br-lan type bridge
ip -n air link set lan0 master br-lan
ip -n air link set lan0 up
ip -n air addr add 10.66.0.1/24 dev br-lan
ip -n air link set br-lan up
ip -n air route add default via 203.0.113.1
ip -n device addr add 10.66.0.2/24 dev wlan0
ip -n device link set wlan0 up
ip -n device route add default via 10.66.0.1

# A process keeps each host's mount namespace.
for host in server ground air device; do
    nsenter --net="/run/netns/$host" unshare --mount sh -euc '
        mount -t sysfs sysfs /sys
        mount -t tmpfs tmpfs /mnt
        mkdir /mnt/upper /mnt/work /mnt/run
        mount -t overlay overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work /etc
        printf "127.0.0.1 localhost\n203.0.113.1 ground.example.net\n11.22.33.44 example.org\n" > /etc/hosts
        printf "hosts: files\n" > /etc/nsswitch.conf
        rm -f /etc/resolv.conf
        printf "nameserver 127.0.0.1\n" > /etc/resolv.conf
        mkdir -p /mnt/run/systemd/system
        mount --bind /mnt/run /run
        touch "$1"
        exec sleep infinity' sh "$top/$host.ready" &
    echo $! > "$top/$host.pid"
done
for host in server ground air device; do
    until [ -e "$top/$host.ready" ]; do
        kill -0 "$(cat "$top/$host.pid")"
        sleep 0.1
    done
done

mkdir "$top/site"
echo 'a page of example.org' > "$top/site/index.html"
on server "cd $top/site; python3 -m http.server --bind 11.22.33.44 80 >/dev/null 2>&1 &"
on server 'for _ in $(seq 600); do ss -Htln | grep -q "11.22.33.44:80 " && exit; sleep 0.1; done; exit 1'

# A kernel with br_netfilter, as Docker loads it, takes intercepted connections from their sockets.
on air 'for name in ip ip6; do
    setting=/proc/sys/net/bridge/bridge-nf-call-${name}tables
    [ ! -e "$setting" ] || echo 0 > "$setting"
done'

line=$(on ground "$ON_GROUND")
case $line in bentpipe://ground.example.net:4500/boat-1?*) ;; *) echo "no join line: $line"; exit 1 ;; esac
on air "$(printf %s "$ON_AIR" | sed "s|LINE|$(printf %s "$line" | sed 's/&/\\\&/g')|")"
on air 'systemctl is-active bentpipe-air.service && echo bentpipe-air.service runs'
on device "$ON_DEVICE --silent --show-error --max-time 60"

# Blocks of the guides, each in a folder of its own: blocks/PAGE:LINE.HOST
for block in "$top"/blocks/*; do
    mkdir "$block.folder"
    on "${block##*.}" "cd '$block.folder'; . '$block'"
    name=${block##*/}
    echo "ran ${name%.*}"
done
