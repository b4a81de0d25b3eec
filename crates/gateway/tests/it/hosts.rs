//! Interception on machines with various configurations: traffic and log messages. Each test
//! creates its own network namespaces.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;

use bentpipe_gateway::air::Air;
use bentpipe_gateway::config::AirConfig;
use bentpipe_gateway::transport::{Acceptor, Carried};
use bentpipe_net::Inherited;
use bentpipe_net::interception::Rules;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tproxy::{PATIENCE, as_root, new_network, sh};
use crate::transports;
use crate::wire;

const V4: &str = "198.51.100.7:443";
const V6: &str = "[2001:db8:7::7]:8443";

/// A cabin with one seat, and the machine of its gateway.
struct Cabin {
    /// Commands on the gateway's machine before and after the cabin is connected.
    before: &'static str,
    after: &'static str,
    /// Additional lines of `[listen.tproxy]`.
    tproxy: &'static str,
    interfaces: &'static str,
    /// Function to run at the seat.
    seat: fn(),
    /// Check of the machine while the gateway runs.
    meanwhile: fn(),
    /// Check of the machine after the seat has finished, while the gateway runs.
    finally: fn(),
    /// Check of the machine after the gateway has stopped.
    afterwards: fn(),
}

impl Default for Cabin {
    fn default() -> Self {
        Self {
            before: "",
            after: "",
            tproxy: "",
            interfaces: "\"cabin0\"",
            seat: || seat("", &[V4, V6]),
            meanwhile: || {},
            finally: || {},
            afterwards: || {},
        }
    }
}

impl Cabin {
    /// Runs the gateway in the calling thread, in a new network namespace. Each flow is answered
    /// with its destination.
    fn run(self) {
        new_network();
        sh(self.before);
        let (send_tid, tid) = mpsc::channel();
        let (send_ready, ready) = mpsc::channel::<()>();
        let (send_back, back) = mpsc::channel::<()>();
        let (send_over, over) = mpsc::channel::<()>();
        let client = std::thread::spawn(move || {
            new_network();
            send_tid.send(nix::unistd::gettid()).unwrap();
            ready.recv_timeout(PATIENCE).unwrap();
            (self.seat)();
            send_back.send(()).unwrap();
            // The cabin exists until the sender is dropped.
            let _ = over.recv();
        });
        let tid = tid.recv_timeout(PATIENCE).unwrap();
        sh(&format!(
            "ip link add cabin0 type veth peer name seat0 netns {tid}\n\
             ip addr add 10.9.0.1/24 dev cabin0\n\
             ip addr add fd09::1/64 dev cabin0 nodad || true\n\
             ip link set cabin0 up\n{}",
            self.after.replace("SEAT", &tid.to_string())
        ));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (air, _folder) = self.gateway();
            (self.meanwhile)();
            let stop = async move {
                send_ready.send(()).unwrap();
                let waiting = tokio::task::spawn_blocking(move || back.recv_timeout(PATIENCE));
                // A failed seat reports its own reason.
                let _ = waiting.await.unwrap();
                (self.finally)();
            };
            air.serve(stop).await;
        });
        drop(send_over);
        client.join().expect("the seat's side succeeds");
        (self.afterwards)();
    }

    fn gateway(&self) -> (Air, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        std::fs::write(folder.path().join("a.key"), key).unwrap();
        let text = format!(
            "[link]\nprivate-key-file = \"a.key\"\npeer = \"127.0.0.1:4500\"\n\
             peer-public-key = \"{key}\"\nrate = \"1 Mbit/s\"\n\
             [listen.tproxy]\nport = 1081\ninterfaces = [{}]\n{}\n\
             [limits]\ndrain-timeout = \"0 s\"\n",
            self.interfaces, self.tproxy
        );
        let config = AirConfig::parse(&folder.path().join("air.toml"), &text).unwrap();
        let (up, down) = wire::link([0; 32]);
        let air = Air::bind(&config, &mut Inherited::default(), up).unwrap();
        tokio::spawn(async move {
            while let Some(incoming) = down.accept().await {
                let Carried::Stream(mut stream) = incoming.carries else { continue };
                tokio::spawn(async move {
                    let mut word = [0; 4];
                    stream.read_exact(&mut word).await.unwrap();
                    let answer = format!("{} said ping", incoming.target);
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    stream.shutdown().await.unwrap();
                });
            }
        });
        (air, folder)
    }
}

/// Connects the cabin and reaches `targets`.
fn seat(more: &str, targets: &[&str]) {
    sh(&format!(
        "ip addr add 10.9.0.2/24 dev seat0\n\
         ip addr add fd09::2/64 dev seat0 nodad\n\
         ip link set seat0 up\n\
         ip route add default via 10.9.0.1\n\
         ip -6 route add default via fd09::1\n{more}"
    ));
    for target in targets {
        assert!(reaches(target), "{target}");
    }
}

fn reaches(target: &str) -> bool {
    let address: SocketAddr = target.parse().unwrap();
    let Ok(mut tcp) = TcpStream::connect_timeout(&address, PATIENCE) else { return false };
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    tcp.write_all(b"ping").unwrap();
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).is_ok() && answer == format!("{target} said ping")
}

/// Lists the kernel's rules and routes.
fn rules() -> String {
    sh("nft list ruleset; ip rule; ip -6 rule || true; ip route show table all")
}

fn nothing_is_left() {
    let left = rules();
    for trace in ["bentpipe", "0x6270", "25200"] {
        assert!(!left.contains(trace), "{trace} is left behind:\n{left}");
    }
}

#[test]
fn without_ipv6_ipv4_is_carried() {
    as_root("hosts::without_ipv6_ipv4_is_carried", || {
        Cabin {
            before: "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6\n\
                     echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6",
            seat: || seat("", &[V4]),
            meanwhile: || {
                let rules = rules();
                assert!(rules.contains("tproxy ip to 127.0.0.1:1081"), "{rules}");
                assert!(!rules.contains("tproxy ip6"), "{rules}");
            },
            afterwards: nothing_is_left,
            ..Cabin::default()
        }
        .run();
    });
}

/// IPv6 disabled on loopback only, as in some images: the kernel refuses the local route.
#[test]
fn without_ipv6_on_loopback_ipv4_is_carried() {
    as_root("hosts::without_ipv6_on_loopback_ipv4_is_carried", || {
        Cabin {
            before: "echo 1 > /proc/sys/net/ipv6/conf/lo/disable_ipv6",
            seat: || seat("", &[V4]),
            afterwards: nothing_is_left,
            ..Cabin::default()
        }
        .run();
    });
}

/// The kernel checks the reverse route of each source. With `src_valid_mark`, which VPNs set, the
/// check uses the packet's mark.
#[test]
fn strict_checks_of_sources_are_passed() {
    as_root("hosts::strict_checks_of_sources_are_passed", || {
        Cabin {
            before: "echo 1 > /proc/sys/net/ipv4/conf/all/rp_filter\n\
                     echo 1 > /proc/sys/net/ipv4/conf/default/rp_filter\n\
                     echo 1 > /proc/sys/net/ipv4/conf/all/src_valid_mark",
            ..Cabin::default()
        }
        .run();
    });
}

#[test]
fn several_interfaces_and_vlans_are_intercepted() {
    as_root("hosts::several_interfaces_and_vlans_are_intercepted", || {
        Cabin {
            // A kernel without VLANs gets another interface with this name.
            after: "ip link add link cabin0 name cabin0.30 type vlan id 30 2>/dev/null || {\n\
                    echo 'SKIPPED: this kernel has no VLANs' > /dev/stderr\n\
                    ip link add cabin0.30 type veth peer name seat0.30; }\n\
                    ip addr add 10.30.0.1/24 dev cabin0.30\n\
                    ip link set cabin0.30 up\n\
                    if ip link show seat0.30 >/dev/null 2>&1; then\n\
                    ip link set seat0.30 netns SEAT; fi",
            // The last interface may be created later.
            interfaces: "\"cabin0\", \"cabin0.30\", \"cabin0.31\"",
            seat: || {
                seat(
                    "ip link show seat0.30 >/dev/null 2>&1 ||\n\
                     ip link add link seat0 name seat0.30 type vlan id 30\n\
                     ip addr add 10.30.0.2/24 dev seat0.30\n\
                     ip link set seat0.30 up\n\
                     ip route add 203.0.113.0/24 via 10.30.0.1",
                    &[V4, V6, "203.0.113.9:443"],
                );
            },
            meanwhile: || {
                let rules = rules();
                for name in ["cabin0", "cabin0.30", "cabin0.31"] {
                    assert!(rules.contains(&format!("iifname \"{name}\" jump")), "{rules}");
                    // `ip` marks interfaces that do not exist.
                    assert!(rules.contains(&format!("iif {name} ")), "{rules}");
                }
            },
            afterwards: nothing_is_left,
            ..Cabin::default()
        }
        .run();
    });
}

/// Number of sources that a device invents.
const INVENTED: usize = 1_024;

/// Each invented address inside the subnet would occupy an entry of the kernel's table of
/// neighbours, which Linux's default limits to 1,024.
#[test]
fn a_device_gets_few_new_sources_a_second() {
    as_root("hosts::a_device_gets_few_new_sources_a_second", || {
        Cabin {
            after: "ip addr add 10.64.0.1/16 dev cabin0",
            seat: || {
                seat("", &[V4, V6]);
                for n in 0..INVENTED {
                    let (high, low) = (n / 200, n % 200 + 2);
                    crate::spoofed::syn([10, 64, high as u8, low as u8].into(), V4);
                }
                for target in [V4, V6] {
                    assert!(reaches(target), "{target} by addresses in use");
                }
            },
            finally: || {
                let table = sh("nft list table inet bentpipe_air");
                let admitted = table.matches(" . 10.64.").count();
                let neighbours = sh("ip neigh show dev cabin0").matches("10.64.").count();
                assert!((100..INVENTED).contains(&admitted), "{admitted} of {INVENTED}\n{table}");
                assert!(neighbours <= admitted, "{neighbours} neighbours of {admitted}\n{table}");
                let chain = table.split("chain sources").nth(1).unwrap();
                let drop = format!("counter packets {} ", INVENTED - admitted);
                assert!(chain.contains(&drop), "the others were dropped: {drop}\n{table}");
                for known in [" . 10.9.0.2 ", " . fd09::2 "] {
                    assert!(table.contains(known), "{known}\n{table}");
                }
            },
            afterwards: nothing_is_left,
            ..Cabin::default()
        }
        .run();
    });
}

/// A firewall that drops by default also drops intercepted packets. The advice in the log works.
#[test]
fn a_firewall_beside_is_named_with_what_lets_packets_through() {
    as_root("hosts::a_firewall_beside_is_named_with_what_lets_packets_through", || {
        Cabin {
            before: "echo 1 > /proc/sys/net/ipv6/conf/default/accept_ra\n\
                     nft add table ip filter\n\
                     nft 'add chain ip filter INPUT { type filter hook input priority 0; policy drop; }'\n\
                     nft add table ip mangle\n\
                     nft 'add chain ip mangle PREROUTING { type filter hook prerouting priority -140; }'\n\
                     nft add rule ip mangle PREROUTING iifname other0 tcp dport 80 tproxy to :3129\n\
                     ip rule add fwmark 0x70/0xff lookup 100 priority 50\n\
                     ip rule add fwmark 0x71/0xff lookup 100 priority 60",
            seat: || seat("", &[V4]),
            meanwhile: || {
                let obstacles = bentpipe_net::interception::obstacles(&["cabin0"], false);
                let all = obstacles.join("\n");
                let advice = "nft insert rule ip filter INPUT meta mark 0x6270 accept";
                assert!(all.contains(&format!("`{advice}`")), "{all}");
                assert!(all.contains("table ip mangle intercepts with TPROXY as well"), "{all}");
                assert!(all.contains("policy rule of priority 50 (`ip rule`)"), "{all}");
                let accepts = "`sysctl net.ipv6.conf.cabin0.accept_ra=0`";
                assert!(all.contains(accepts), "{all}");
                assert_eq!(obstacles.len(), 4, "{all}");
                sh("echo 0 > /proc/sys/net/ipv6/conf/cabin0/accept_ra");
                sh(advice);
                sh("ip rule del priority 50");
                assert_eq!(bentpipe_net::interception::obstacles(&["cabin0"], false).len(), 2);
            },
            ..Cabin::default()
        }
        .run();
    });
}

#[test]
fn missing_kernel_features_are_named() {
    as_root("hosts::missing_kernel_features_are_named", || {
        new_network();
        sh("ip link add br0 type bridge\n\
            ip link add port0 type veth peer name seat0\n\
            ip link set port0 master br0\n\
            echo 1 > /proc/sys/net/ipv4/ip_forward\n\
            ip link add bare0 type veth peer name bare1\n\
            ip link set bare0 addrgenmode none up\n\
            echo 0 > /proc/sys/net/ipv6/conf/br0/accept_ra\n\
            echo 0 > /proc/sys/net/ipv6/conf/bare0/accept_ra\n\
            ip link set bare1 up\n\
            ip addr add fd0a::1/64 dev bare0");
        let bare = || bentpipe_net::interception::obstacles(&["bare0"], true).join("\n");
        assert!(bare().contains("bare0 has no link-local address of IPv6"), "{}", bare());
        sh("ip addr add fe80::1/64 dev bare0");
        assert_eq!(bare(), "");
        let said = bentpipe_net::interception::obstacles(&["port0", "none0"], false).join("\n");
        assert!(said.contains("port0 is a port of the bridge br0"), "{said}");
        assert!(said.contains("there is no interface none0 now"), "{said}");
        assert!(said.contains("forwards packets (net.ipv4.ip_forward=1)"), "{said}");
        let closed = bentpipe_net::interception::obstacles(&["br0"], true);
        assert_eq!(closed, [""; 0]);
    });
}

/// With `fail-closed`, packets that are not carried are dropped while the gateway runs and after it
/// has stopped.
#[test]
fn fail_closed_lets_nothing_past() {
    as_root("hosts::fail_closed_lets_nothing_past", || {
        Cabin {
            before: "echo 1 > /proc/sys/net/ipv4/ip_forward",
            tproxy: "fail-closed = true",
            seat: || seat("", &[V4, V6]),
            meanwhile: || assert!(rules().contains("drop"), "{}", rules()),
            afterwards: || {
                let left = rules();
                assert!(left.contains("table inet bentpipe_air"), "{left}");
                assert!(!left.contains("0x6270 lookup"), "{left}");
                // A packet to elsewhere is dropped, but one to this machine is not.
                let chain = left.split("chain cabin").nth(1).unwrap();
                let chain = chain.split('}').next().unwrap();
                let last = chain.lines().rfind(|line| line.contains("drop")).unwrap();
                assert!(last.trim().starts_with("counter packets"), "{left}");
                Rules::remove_leftovers().unwrap();
                nothing_is_left();
            },
            ..Cabin::default()
        }
        .run();
    });
}

/// PPPoE leaves 1,492 bytes. Probing detects a hop that silently drops larger packets, and an
/// interface that refuses them.
#[test]
fn a_radio_side_of_1492_bytes_carries_flows() {
    as_root("hosts::a_radio_side_of_1492_bytes_carries_flows", || {
        // At the hop, each packet is separate: no segmentation offload.
        let silent_hop = "ip link set lo gso_max_segs 1\n\
            nft add table inet hop\n\
            nft 'add chain inet hop input { type filter hook input priority 0; }'\n\
            nft add rule inet hop input meta l4proto udp meta length '>' 1492 counter drop";
        for setup in ["ip link set lo mtu 1492", silent_hop] {
            new_network();
            sh(setup);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(transports::carries_flows(transports::over_link));
        }
        let counted = sh("nft list ruleset");
        assert!(!counted.contains("counter packets 0 "), "nothing was dropped:\n{counted}");
    });
}
