//! The program in network namespaces that this test makes: paths of eight hops, a filter, a resolver with a
//! cache, a portal, an echo server that loses and delays. Each finding is compared with the truth.
//!
//! | module | contents |
//! |---|---|
//! | `hosts` | namespaces and the paths between them |
//! | `caches` | a caching proxy and an origin behind it |
//! | `servers` | resolver, portal and echo server, with their logs |
//! | `probe` | the program, and its records |

mod caches;
mod hosts;
mod probe;
mod servers;

use std::net::IpAddr;

use bentpipe_probe::dns::{DnsPair, NameKind, Quadrants};
use bentpipe_probe::objects::{ObjectKind, ObjectPair, Verdict, Verdicts, Witness};
use bentpipe_probe::ping::{Outcome, Ping};
use bentpipe_probe::portal::PortalState;
use bentpipe_probe::rate::{Direction, Limit, RateCheck};
use bentpipe_probe::record::Measurement;
use bentpipe_probe::target::Family;
use bentpipe_probe::trace::{Probe, Trace, TraceEnd, TraceMethod};
use bentpipe_probe_host::epb::{self, Provisioned};

use url::Url;

use hosts::Chain;
use probe::Run;

/// Routers between the client and the target.
const ROUTERS: usize = 7;

fn main() {
    if let Err(why) = hosts::enter() {
        println!("SKIPPED: the probe is not tested in namespaces: {why}");
        return;
    }
    // Each has namespaces of its own, and mostly waits.
    let checks = [
        ("paths with rights", paths_with_rights as fn()),
        ("paths without rights", paths_without_rights),
        ("a filter", a_filter),
        ("silent ICMP", silent_icmp),
        ("losses and late replies", losses_and_late_replies),
        ("lookups and portal", lookups_and_portal),
        ("the public address of IPv6", public_ipv6),
        ("a cache in flight", a_cache_in_flight),
        ("a policer", a_policer),
        ("EPB ratios", epb_ratios),
        ("no network", no_network),
        ("no place to store", no_place_to_store),
    ]
    .map(|(name, check)| (name, std::thread::spawn(check)));
    let failed: Vec<&str> = checks
        .into_iter()
        .filter_map(|(name, thread)| {
            let ok = thread.join().is_ok();
            println!("test {name} ... {}", if ok { "ok" } else { "FAILED" });
            (!ok).then_some(name)
        })
        .collect();
    assert!(failed.is_empty(), "{failed:?}");
}

/// Traceroutes in the records of a run.
fn traces(run: &Run) -> Vec<Trace> {
    let trace = |measurement: &Measurement| match measurement {
        Measurement::Trace(trace) => Some(trace.clone()),
        _ => None,
    };
    run.measurements().filter_map(trace).collect()
}

/// Pings in the records of a run, without scouts.
fn pings(run: &Run) -> Vec<Ping> {
    let ping = |measurement: &Measurement| match measurement {
        Measurement::Ping(ping) if !ping.scout => Some(ping.clone()),
        _ => None,
    };
    run.measurements().filter_map(ping).collect()
}

/// Senders of all replies of each hop.
fn senders(trace: &Trace) -> Vec<Vec<IpAddr>> {
    let replies = |probe: &Probe| match probe {
        Probe::Reply { from, rtt_us, .. } => {
            assert!(*rtt_us > 0 && *rtt_us < 1_000_000, "{rtt_us} us on one machine");
            Some(*from)
        }
        _ => None,
    };
    trace.hops.iter().map(|hop| hop.probes.iter().filter_map(replies).collect()).collect()
}

fn whole_path(chain: &Chain, trace: &Trace) {
    assert_eq!(trace.end, TraceEnd::Reached, "{trace:?}");
    let v6 = trace.address.is_ipv6();
    let expected: Vec<Vec<IpAddr>> =
        (1..=ROUTERS + 1).map(|hop| vec![chain.hop(hop, v6); 3]).collect();
    assert_eq!(senders(trace), expected, "three replies of each hop, in order");
}

fn paths_with_rights() {
    let chain = Chain::new(ROUTERS);
    for v6 in [false, true] {
        let run = Run::new(&chain, &["--target", &format!("far={}", chain.target(v6))], 6, true);
        let traces = traces(&run);
        let methods: Vec<TraceMethod> = traces.iter().map(|trace| trace.method).collect();
        assert_eq!(methods, [TraceMethod::Udp, TraceMethod::Icmp], "IPv6: {v6}");
        traces.iter().for_each(|trace| whole_path(&chain, trace));
        let pings = pings(&run);
        assert!(pings.len() >= 3, "{pings:?}");
        assert!(
            pings
                .iter()
                .all(|ping| ping.method.to_string() == "icmp" && ping.outcome.rtt_us().is_some())
        );
    }
}

fn paths_without_rights() {
    let chain = Chain::new(ROUTERS);
    for v6 in [false, true] {
        let run = Run::new(&chain, &["--target", &format!("far={}", chain.target(v6))], 6, false);
        let traces = traces(&run);
        let methods: Vec<TraceMethod> = traces.iter().map(|trace| trace.method).collect();
        assert_eq!(methods, [TraceMethod::Udp], "raw sockets are not allowed");
        whole_path(&chain, &traces[0]);
        // Nothing listens at the target, and its refusal is a reply.
        let pings = pings(&run);
        let refused = |ping: &Ping| matches!(ping.outcome, Outcome::Reply { refused: true, .. });
        assert!(pings.len() >= 3 && pings.iter().all(refused), "{pings:?}");
        assert!(pings.iter().all(|ping| ping.method.to_string() == "tcp/443"));
    }
}

fn a_filter() {
    let chain = Chain::new(ROUTERS);
    // The check for a portal ends at once there, where the resolver's silence would last 10 s.
    let portal = format!("http://{}/", chain.hop(1, false));
    let target = format!("far={}", chain.target(false));
    for dies_after in [3, 5] {
        chain.drop_at(dies_after + 1);
        // Both traces wait for silent hops. On a busy machine they need longer.
        let arguments = ["--target", &target, "--portal-url", &portal];
        let traces = |seconds| traces(&Run::new(&chain, &arguments, seconds, true));
        let traces = [38, 120].into_iter().map(traces).find(|traces| traces.len() == 2);
        let traces = traces.expect("two traces within two minutes");
        for trace in traces {
            assert_eq!(trace.end, TraceEnd::Died { after_ttl: dies_after as u8 }, "{trace:?}");
            let silent = senders(&trace).pop().unwrap_or_default();
            assert!(silent.is_empty(), "the hop after the last is shown as silent");
        }
        chain.pass_at(dies_after + 1);
    }
}

fn silent_icmp() {
    let chain = Chain::new(1);
    chain.ignore_echo();
    let run = Run::new(&chain, &["--target", &format!("far={}", chain.target(false))], 20, true);
    let pings = pings(&run);
    let (tcp, icmp): (Vec<_>, Vec<_>) =
        pings.iter().partition(|ping| ping.method.to_string() == "tcp/443");
    assert!(icmp.iter().all(|ping| ping.outcome == Outcome::Lost), "{icmp:?}");
    assert!((2..=5).contains(&icmp.len()), "ICMP is given up after 6 s: {icmp:?}");
    assert!(tcp.len() >= 4 && tcp.iter().all(|ping| ping.outcome.rtt_us().is_some()), "{tcp:?}");
    let last_icmp = icmp.iter().map(|ping| ping.sequence).max();
    let first_tcp = tcp.iter().map(|ping| ping.sequence).min();
    assert!(last_icmp < first_tcp, "one method at a time");
}

fn losses_and_late_replies() {
    let chain = Chain::new(1);
    let (lost, late) = ([1, 4], 2);
    let server = servers::echo(&chain, lost, late);
    let run = Run::new(
        &chain,
        &["--target", &format!("echo=udp:{}:4007", chain.target(false))],
        24,
        false,
    );
    let log = server.stop();
    let pings = pings(&run);
    // Those of the last 10 s may still have had their reply awaited.
    let decided: Vec<&Ping> = pings.iter().filter(|ping| ping.sequence < 6).collect();
    assert_eq!(decided.len(), 6, "{pings:?}");
    for ping in decided {
        let is_lost = lost.contains(&ping.sequence);
        match &ping.outcome {
            Outcome::Lost => assert!(is_lost, "{ping:?}"),
            Outcome::Late { rtt_us, .. } => {
                assert!(
                    ping.sequence == late && *rtt_us >= servers::LATE.as_micros() as u64,
                    "{ping:?}"
                );
            }
            Outcome::Reply { rtt_us, .. } => {
                assert!(!is_lost && ping.sequence != late, "{ping:?}");
                assert!(*rtt_us >= servers::DELAY.as_micros() as u64, "{ping:?}");
            }
            Outcome::Failed { failure } => panic!("{failure}"),
        }
    }
    let seen: Vec<u32> = log.into_iter().take(6).collect();
    assert_eq!(seen, [0, 1, 2, 3, 4, 5], "the server saw these very pings, each once");
}

fn lookups_and_portal() {
    let chain = Chain::new(1);
    let target = chain.target(false);
    let resolver = servers::resolver(&chain);
    let portal = servers::portal(&chain);
    let (url, address) = (format!("http://{target}/generate_204"), target.to_string());
    let stun = servers::stun(&chain);
    let arguments = [
        ["--target", &address],
        ["--portal-url", &url],
        ["--resolver", &address],
        ["--stun-server", &address],
    ];
    let arguments = arguments.as_flattened();
    let run = Run::new(&chain, arguments, 30, false);
    stun.stop();
    let truth = resolver.stop();
    portal.stop();
    let pair = |measurement: &Measurement| match measurement {
        Measurement::Dns(pair) => Some(pair.clone()),
        _ => None,
    };
    let pairs: Vec<DnsPair> = run.measurements().filter_map(pair).collect();
    let (unique, listed): (Vec<_>, Vec<_>) =
        pairs.iter().partition(|pair| pair.kind == NameKind::Unique);
    assert_eq!((listed.len(), unique.len()), (100, 1));
    // The limit lies between the two times of the modelled resolver.
    let found = Quadrants::of(listed.iter().copied(), servers::MISS.as_micros() as u64 / 2);
    let expected = truth.quadrants(listed.iter().map(|pair| pair.name.as_str()));
    assert_eq!(found, expected, "each pair is in the quadrant of the server's log");
    assert!(found.both_hit > 20 && found.both_miss > 2 && found.failed == 0, "{found:?}");
    let states: Vec<PortalState> = run
        .measurements()
        .filter_map(|measurement| match measurement {
            Measurement::Portal(check) => Some(check.state.clone()),
            _ => None,
        })
        .collect();
    let captive = PortalState::Captive { location: Some("http://login.example/".into()) };
    assert_eq!(states[..1], [captive], "{states:?}");
    let address = run.measurements().find_map(|measurement| match measurement {
        Measurement::Address(check) => Some(check.clone()),
        _ => None,
    });
    // The client is 10.0.0.1, and there is no translator on this path.
    let network = address.expect("a check of the address").network;
    assert_eq!(network, Some(IpAddr::from([10, 0, 0, 0])));
    let dns_beside_pings = run.records.iter().any(|record| {
        matches!(record.measurement, Measurement::Ping(_))
            && record.concurrent.iter().any(|name| name.starts_with("dns:"))
    });
    assert!(dns_beside_pings, "pings name the lookups that ran meanwhile");
    let numbers: Vec<u64> = run.records.iter().map(|record| record.number).collect();
    let expected: Vec<u64> = (1..=run.records.len() as u64).collect();
    assert_eq!(numbers, expected, "no record is missing");
    run.check_report(&["figure 10", "CAPTIVE".to_lowercase().as_str()]);
}

fn public_ipv6() {
    let chain = Chain::new(1);
    let stun = servers::stun(&chain);
    let (target, portal) =
        (format!("far={}", chain.target(true)), format!("http://{}/", chain.target(false)));
    let server = format!("[{}]", chain.target(true));
    let arguments = ["--target", &target, "--portal-url", &portal, "--stun-server", &server];
    let run = Run::new(&chain, &arguments, 10, false);
    stun.stop();
    let check = run.measurements().find_map(|measurement| match measurement {
        Measurement::Address(check) => Some(check.clone()),
        _ => None,
    });
    // The client is fd00:0::1.
    let check = check.expect("a check of the address");
    assert_eq!((check.family, check.network), (Family::V6, "fd00::".parse().ok()), "{check:?}");
    assert!(run.output.contains("fd00::/48"), "{}", run.output);
}

/// Attempts at a rate check on a busy machine.
const ATTEMPTS: usize = 3;

/// A policer at the first hop, between the probe and an own origin on the ground.
fn a_policer() {
    for _ in 0..ATTEMPTS {
        // A late train proves nothing, and the probe says so.
        let [down, up] = rate_checks();
        assert_eq!((down.direction, up.direction), (Direction::Down, Direction::Up));
        assert_eq!((&down.failure, &up.failure), (&None, &None));
        match (&down.limit, &up.limit) {
            (Some(Limit::Unknown), _) => {}
            (Some(Limit::Policer { rate_bps, burst_bytes }), Some(up)) => {
                // The accuracy is tested in virtual time (`rate::tests`).
                assert!((50_000..=200_000).contains(rate_bps), "{rate_bps}");
                // The kernel's bucket for bytes has a second's worth more, 18.5 kB, of which earlier trains
                // took a part.
                assert!((4000..=18_500).contains(burst_bytes), "{burst_bytes}");
                assert!(!matches!(up, Limit::Policer { .. }), "{up:?}");
                return;
            }
            limits => panic!("{limits:?}"),
        }
    }
    assert!(is_busy(), "the probe cannot tell a policer on an idle machine");
    println!("SKIPPED: this machine is too busy: in {ATTEMPTS} attempts no policer could be told");
}

/// Returns `true` if more than two threads wait for each processor.
fn is_busy() -> bool {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: f64 = load.split(' ').next().and_then(|it| it.parse().ok()).unwrap_or(0.0);
    let processors = std::thread::available_parallelism().map_or(1, |it| it.get());
    load > 2.0 * processors as f64
}

fn rate_checks() -> [RateCheck; 2] {
    let chain = Chain::new(1);
    let _origin = caches::origin(&chain);
    // 100 kbit/s to the client, and all that the machine can do from it.
    chain.police_at(1, 8080, 12_500, 6000);
    let (target, origin) =
        (format!("far={}", chain.target(false)), format!("http://{}:8080/", chain.target(false)));
    let arguments = ["--target", &target, "--stun-server", "127.0.0.1:9", "--origin", &origin];
    let run = Run::with_names(&chain, &arguments, "www.example.com\n", 45);
    let checks = run.measurements().filter_map(|measurement| match measurement {
        Measurement::Rate(check) => Some((**check).clone()),
        _ => None,
    });
    let checks: Vec<RateCheck> = checks.collect();
    checks.try_into().unwrap_or_else(|checks: Vec<_>| panic!("{} checks", checks.len()))
}

fn epb_ratios() {
    let chain = Chain::new(1);
    let _origin = caches::origin(&chain);
    chain.shape(8_000_000, 1_000_000);
    let origin = Url::parse(&format!("http://{}:8080/", chain.target(false))).expect("a URL");
    let provisioned: Provisioned = "8 Mbit/s,1 Mbit/s".parse().expect("rates");
    let measured = chain.client().thread(move || {
        [Direction::Down, Direction::Up]
            .map(|direction| epb::measure(&origin, direction, provisioned, &[]))
    });
    for test in measured.join().expect("two tests") {
        assert_eq!(test.failure, None, "{test:?}");
        // An Ethernet frame of 1,514 bytes has 1,448 bytes of a file: 95.6 %. The bucket of the shaper adds a little.
        let ratio = test.ratio().expect("a ratio");
        assert!((0.93..=1.0).contains(&ratio), "{ratio} {test:?}");
        let overhead = test.overhead().expect("counters");
        // The kernel of the namespaces counts several segments as one packet, so most headers are missing.
        assert!((1.005..=1.12).contains(&overhead), "{overhead} {test:?}");
    }
}

/// Squid at the first hop, between the probe and an own origin on the ground.
fn a_cache_in_flight() {
    let chain = Chain::new(1);
    // Squid gives up an origin that it does not reach at its start.
    let _origin = caches::origin(&chain);
    let Some(_squid) = caches::squid(&chain) else {
        println!("SKIPPED: no cache in flight is tested: `squid` is missing");
        return;
    };
    let target = format!("far={}", chain.target(false));
    let found = |origin: &str| {
        let arguments = ["--target", &target, "--stun-server", "127.0.0.1:9", "--origin", origin];
        let run = Run::with_names(&chain, &arguments, "www.example.com\n", 25);
        let pairs: Vec<ObjectPair> = run
            .measurements()
            .filter_map(|measurement| match measurement {
                Measurement::Objects(pair) if pair.kind == ObjectKind::Origin => {
                    Some((**pair).clone())
                }
                _ => None,
            })
            .collect();
        let sizes: Vec<u64> = pairs.iter().map(|pair| pair.first.bytes).collect();
        assert_eq!(sizes, [1, 1000, 10_000, 100_000, 1_000_000], "{pairs:?}");
        // There is no radio between them, so time tells nothing here.
        (Verdicts::of(pairs.iter(), 1).found, pairs)
    };
    let (through, pairs) = found(&format!("http://{}/", chain.hop(1, false)));
    let miss_then_hit = (Verdict::Miss(Witness::Proxy), Some(Verdict::Hit(Witness::Proxy)));
    assert_eq!(through, [miss_then_hit; 5], "{pairs:?}");
    assert!(pairs.iter().all(|pair| {
        pair.first.serial.is_some()
            && pair.second.as_ref().is_some_and(|s| s.serial == pair.first.serial)
    }));
    let (direct, pairs) = found(&format!("http://{}:8080/", chain.target(false)));
    assert_eq!(direct, [(Verdict::None, Some(Verdict::None)); 5], "{pairs:?}");
}

fn no_network() {
    let chain = Chain::new(1);
    chain.cut();
    let run = Run::new(&chain, &[], 5, false);
    assert!(run.output.contains("no network: no route to the Internet"), "{}", run.output);
    let pings = pings(&run);
    let unsent = |ping: &Ping| matches!(&ping.outcome, Outcome::Failed { failure } if failure == "network_unreachable");
    assert!(!pings.is_empty() && pings.iter().all(unsent), "{pings:?}");
}

fn no_place_to_store() {
    let chain = Chain::new(1);
    let target = format!("far={}", chain.target(false));
    let (output, errors) = Run::without_a_store(&chain, &["--target", &target], 6);
    assert!(
        output.contains("far ") && output.contains("records wait in memory"),
        "it goes on: {output}"
    );
    assert!(errors.contains("Name another file with --store"), "it says so at once: {errors}");
    assert!(errors.contains("records of this run are lost"), "and at the end: {errors}");
}
