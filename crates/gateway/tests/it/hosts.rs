//! Machines as people run them: what interception carries there, and what it says. Each test makes
//! network namespaces of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;

use bentpipe_gateway::air::Air;
use bentpipe_gateway::air::rules::Rules;
use bentpipe_gateway::config::AirConfig;
use bentpipe_gateway::far::{Arrivals, Carried};
use bentpipe_gateway::net::Inherited;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tproxy::{PATIENCE, as_root, new_network, sh};
use crate::transports;
use crate::wire;

const V4: &str = "198.51.100.7:443";
const V6: &str = "[2001:db8:7::7]:8443";

/// A cabin with one seat, and the machine that its gateway runs on.
struct Cabin {
    /// Commands on the gateway's machine before the cabin is joined, and after.
    before: &'static str,
    after: &'static str,
    /// More of `[listen.tproxy]`.
    tproxy: &'static str,
    interfaces: &'static str,
    /// The seat's side.
    seat: fn(),
    /// A look at the machine while the gateway runs.
    meanwhile: fn(),
    /// A look at the machine once the gateway has stopped.
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
            afterwards: || {},
        }
    }
}

impl Cabin {
    /// Runs the gateway in the calling thread, which gets a network of its own. Each flow that comes is
    /// answered by its destination.
    fn run(self) {
        new_network();
        sh(self.before);
        let (send_tid, tid) = mpsc::channel();
        let (send_ready, ready) = mpsc::channel::<()>();
        let (send_back, back) = mpsc::channel::<()>();
        let client = std::thread::spawn(move || {
            new_network();
            send_tid.send(nix::unistd::gettid()).unwrap();
            ready.recv_timeout(PATIENCE).unwrap();
            (self.seat)();
            send_back.send(()).unwrap();
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
                // A seat that failed says why itself.
                let _ = waiting.await.unwrap();
            };
            air.serve(stop).await;
        });
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

/// Joins the cabin and reaches `targets`.
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

/// The rules and routes that the kernel has.
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

/// IPv6 that is off on loopback alone, as some images have it: the kernel refuses the local route.
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

/// The kernel asks for the way back to each source; with `src_valid_mark`, which VPNs set, by the
/// mark of the packet.
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
            // A kernel without VLANs gets an interface of such a name.
            after: "ip link add link cabin0 name cabin0.30 type vlan id 30 2>/dev/null || {\n\
                    echo 'SKIPPED: this kernel has no VLANs' > /dev/stderr\n\
                    ip link add cabin0.30 type veth peer name seat0.30; }\n\
                    ip addr add 10.30.0.1/24 dev cabin0.30\n\
                    ip link set cabin0.30 up\n\
                    if ip link show seat0.30 >/dev/null 2>&1; then\n\
                    ip link set seat0.30 netns SEAT; fi",
            // The last one may come later.
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
                    // `ip` marks those that do not exist.
                    assert!(rules.contains(&format!("iif {name} ")), "{rules}");
                }
            },
            afterwards: nothing_is_left,
            ..Cabin::default()
        }
        .run();
    });
}

/// A firewall that drops by default forbids intercepted packets, too. The log's own advice helps.
#[test]
fn a_firewall_beside_is_named_with_what_lets_packets_through() {
    as_root("hosts::a_firewall_beside_is_named_with_what_lets_packets_through", || {
        Cabin {
            before: "nft add table ip filter\n\
                     nft 'add chain ip filter INPUT { type filter hook input priority 0; policy drop; }'\n\
                     nft add table ip mangle\n\
                     nft 'add chain ip mangle PREROUTING { type filter hook prerouting priority -140; }'\n\
                     nft add rule ip mangle PREROUTING iifname other0 tcp dport 80 tproxy to :3129\n\
                     ip rule add fwmark 0x70/0xff lookup 100 priority 50\n\
                     ip rule add fwmark 0x71/0xff lookup 100 priority 60",
            seat: || seat("", &[V4]),
            meanwhile: || {
                let obstacles = bentpipe_gateway::air::rules::obstacles(&["cabin0"], false);
                let all = obstacles.join("\n");
                let advice = "nft insert rule ip filter INPUT meta mark 0x6270 accept";
                assert!(all.contains(&format!("`{advice}`")), "{all}");
                assert!(all.contains("table ip mangle intercepts with TPROXY as well"), "{all}");
                assert!(all.contains("policy rule of priority 50 (`ip rule`)"), "{all}");
                assert_eq!(obstacles.len(), 3, "{all}");
                sh(advice);
                sh("ip rule del priority 50");
                assert_eq!(bentpipe_gateway::air::rules::obstacles(&["cabin0"], false).len(), 2);
            },
            ..Cabin::default()
        }
        .run();
    });
}

#[test]
fn what_a_machine_lacks_is_said() {
    as_root("hosts::what_a_machine_lacks_is_said", || {
        new_network();
        sh("ip link add br0 type bridge\n\
            ip link add port0 type veth peer name seat0\n\
            ip link set port0 master br0\n\
            echo 1 > /proc/sys/net/ipv4/ip_forward");
        let said = bentpipe_gateway::air::rules::obstacles(&["port0", "none0"], false).join("\n");
        assert!(said.contains("port0 is a port of the bridge br0"), "{said}");
        assert!(said.contains("there is no interface none0 now"), "{said}");
        assert!(said.contains("forwards packets (net.ipv4.ip_forward=1)"), "{said}");
        let closed = bentpipe_gateway::air::rules::obstacles(&["br0"], true);
        assert_eq!(closed, [""; 0]);
    });
}

/// With `fail-closed`, what is not carried goes nowhere: neither now nor once the gateway has gone.
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
                // A packet to elsewhere is dropped, one to this machine is not.
                let chain = left.split("chain cabin").nth(1).unwrap();
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

/// PPPoE leaves 1,492 bytes. A hop that drops larger packets without a word is found by probing, and
/// so is an interface that refuses them.
#[test]
fn a_radio_side_of_1492_bytes_carries_flows() {
    as_root("hosts::a_radio_side_of_1492_bytes_carries_flows", || {
        // Each packet is one of its own at the hop: no segmentation offload.
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
