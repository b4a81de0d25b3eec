#!/bin/sh
# Installs missing tools for building and for the lab, and prints each step. An argument selects others:
#   python   for the tests' MASQUE client
#   busybox  the shell and the tools of a router, for the tests of the package for OpenWrt
#   browser  Chromium, which loads pages through the gateways
#   unbound  the resolver for comparisons, a signer for zones, and dnsperf for scripts/bench-dns
#   squid    the caching proxy for a test of the probe
#   prometheus   promtool, which checks the metrics and the alerts
#   kcptun   the tunnel that the lab compares with the gateways
#   vega     the bundle that draws the figures of reports
#   axe      axe-core, which looks for faults of accessibility in pages
#   musl     what a static program is built with
#   dist-x86_64, dist-aarch64, dist-armv7   C compilers for the static programs of a release
#   dist-oci     umoci and setcap, which make images of containers
#   dist-deb, dist-cyclonedx   cargo-deb, for packages; cargo-cyclonedx, for the list of their parts
set -eu

say() { printf 'setup: %s\n' "$*"; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null 2>&1; then
        sudo "$@"
    else
        say "this needs root, and there is no sudo: run as root: $*"
        exit 1
    fi
}

# Each line: a command that must exist, and its package on Debian/Ubuntu, Fedora, Alpine and Arch.
needs() {
    cat <<'LIST'
cc gcc gcc gcc gcc
make make make make make
nft nftables nftables nftables nftables
ip iproute2 iproute iproute2 iproute2
curl curl curl curl curl
ping iputils-ping iputils iputils iputils
traceroute traceroute traceroute traceroute traceroute
LIST
}

# On Debian, venv is a package separate from python3.
python_needs() {
    if ! python3 -c 'import ensurepip' 2>/dev/null; then
        echo 'python-with-venv python3-venv python3 python3 python'
    fi
}

busybox_needs() {
    echo 'busybox busybox busybox busybox busybox'
}

browser_needs() {
    for command in chromium chromium-browser google-chrome chrome; do
        if command -v "$command" >/dev/null 2>&1; then return; fi
    done
    echo 'chromium chromium chromium chromium chromium'
}

unbound_needs() {
    echo 'unbound unbound unbound unbound unbound'
    echo 'dnsperf dnsperf dnsperf dnsperf dnsperf'
    echo 'ldns-signzone ldnsutils ldns-utils ldns-tools ldns'
}

squid_needs() {
    echo 'squid squid squid squid squid'
}

# Debian's and Ubuntu's package; on other systems the package manager reports that it is missing.
kcptun_needs() {
    echo 'kcptun-client kcptun kcptun kcptun kcptun'
}

prometheus_needs() {
    echo 'promtool prometheus prometheus prometheus prometheus'
}

# On Alpine, the compiler of the system is musl's.
musl_needs() {
    echo 'musl-gcc musl-tools musl-gcc musl-dev musl'
}

# musl's C library is Rust's own; the compiler for glibc drives its linker.
dist_aarch64_needs() {
    echo 'aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu gcc-aarch64-linux-gnu gcc-aarch64-none-elf aarch64-linux-gnu-gcc'
}

dist_armv7_needs() {
    echo 'arm-linux-gnueabihf-gcc gcc-arm-linux-gnueabihf gcc-arm-linux-gnu gcc-arm-none-eabi arm-linux-gnueabihf-gcc'
}

dist_oci_needs() {
    echo 'umoci umoci umoci umoci umoci'
    echo 'setcap libcap2-bin libcap libcap libcap'
}

nothing_needs() {
    :
}

list=needs
case ${1:-} in
python | vega | axe) list=python_needs ;;
busybox) list=busybox_needs ;;
browser) list=browser_needs ;;
unbound) list=unbound_needs ;;
squid) list=squid_needs ;;
kcptun) list=kcptun_needs ;;
prometheus) list=prometheus_needs ;;
musl | dist-x86_64) list=musl_needs ;;
dist-aarch64) list=dist_aarch64_needs ;;
dist-armv7) list=dist_armv7_needs ;;
dist-oci) list=dist_oci_needs ;;
dist-deb | dist-cyclonedx) list=nothing_needs ;;
esac

# Certificates for the download of rustup; a minimal Debian has none.
certificates() {
    for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
        /etc/ssl/cert.pem; do
        [ ! -s "$file" ] || return 0
    done
    return 1
}

missing=''
[ "$list" != needs ] || certificates || missing=' ca-certificates'
column=2
if command -v apt-get >/dev/null 2>&1; then column=2
elif command -v dnf >/dev/null 2>&1; then column=3
elif command -v apk >/dev/null 2>&1; then column=4
elif command -v pacman >/dev/null 2>&1; then column=5
fi
PATH="$PATH:/usr/sbin:/sbin"
for line in $($list | tr ' ' ':'); do
    command=$(printf '%s' "$line" | cut -d: -f1)
    command -v "$command" >/dev/null 2>&1 ||
        missing="$missing $(printf '%s' "$line" | cut -d: -f"$column")"
done

if [ -n "$missing" ]; then
    say "installing with the system's package manager:$missing"
    # shellcheck disable=SC2086 # the names are words
    case $column in
    2)
        if ! command -v apt-get >/dev/null 2>&1; then
            say "no known package manager here: install these yourself:$missing"
            exit 1
        fi
        as_root apt-get update -qq
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libc6-dev $missing
        ;;
    3) as_root dnf install -y -q $missing ;;
    4) as_root apk add --quiet musl-dev $missing ;;
    5) as_root pacman -S --noconfirm --needed $missing ;;
    esac
fi

if ! command -v cargo >/dev/null 2>&1; then
    say "installing Rust (the stable toolchain, by rustup, into ~/.cargo)"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal
    PATH="$HOME/.cargo/bin:$PATH"
fi

case ${1:-} in
vega | axe)
    root=$(cd "$(dirname "$0")/.." && pwd)
    "$root/scripts/$1/install.sh" "$root/target/$1"
    ;;
esac

if [ "${1:-}" = musl ]; then
    target=x86_64-unknown-linux-musl
    if ! rustup target list --installed 2>/dev/null | grep -q "^$target\$"; then
        say "installing Rust's standard library for $target (rustup)"
        rustup target add "$target"
    fi
fi

case ${1:-} in
dist-deb | dist-cyclonedx)
    tool=cargo-${1#dist-}
    if ! command -v "$tool" >/dev/null 2>&1; then
        say "installing $tool from the registry"
        cargo install --locked --quiet "$tool"
    fi
    ;;
esac

say "ready: $(cargo --version), $(cc --version | head -n 1), $(nft --version | cut -d' ' -f1,2)"
