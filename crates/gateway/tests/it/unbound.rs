//! A thousand names of every common type, and signed ones: answers through both gateways equal
//! those of Unbound.

mod zones;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::Duration;

use bentpipe_gateway::air::{Air, ResolverHandle};
use bentpipe_net::Inherited;
use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::{Record, RecordType};
use tokio::net::{TcpStream, UdpSocket};

use crate::bench::soon;
use crate::dns::{query, read, write};
use crate::transports::{configs_with, over_link, start_ground};
use zones::{NAMES, SIGNED_NAMES, Zone, kind, number};

/// A running Unbound with zones, killed when dropped.
struct Unbound(Child, SocketAddr);

impl Drop for Unbound {
    fn drop(&mut self) {
        // Fails only if the process has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts Unbound with these zones. If it is not installed, prints a notice and returns `None`.
async fn unbound(folder: &Path, zones: &[Zone]) -> Option<Unbound> {
    let program = ["unbound", "/usr/sbin/unbound"].into_iter().find(|program| {
        let mut version = Command::new(program);
        version.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    });
    let Some(program) = program else {
        // Not by a macro, because the test harness captures its output.
        let why = "`scripts/setup.sh unbound` installs it";
        let mut seen = std::io::stderr();
        writeln!(seen, "SKIPPED: names are not compared with Unbound's: {why}").unwrap();
        return None;
    };
    // A port outside the range that the system assigns to other tests; each test here uses another.
    static TESTS: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + (std::process::id() % 10_000) as u16 + 1000 * TESTS.fetch_add(1, Relaxed);
    let is_free = |port: &u16| {
        let at = (std::net::Ipv4Addr::LOCALHOST, *port);
        std::net::UdpSocket::bind(at).is_ok() && std::net::TcpListener::bind(at).is_ok()
    };
    let port = (first..first + 1000).find(is_free).expect("a port is free");
    let at = folder.display();
    let mut config = format!(
        "server:\n  interface: 127.0.0.1\n  port: {port}\n  username: \"\"\n  chroot: \"\"\n\
         \x20 directory: \"{at}\"\n  pidfile: \"{at}/pid\"\n  use-syslog: no\n  verbosity: 0\n\
         \x20 do-daemonize: no\n  access-control: 127.0.0.0/8 allow\n  module-config: \"iterator\"\n\
         \x20 num-threads: 1\n  minimal-responses: yes\n\
         remote-control:\n  control-enable: no\n"
    );
    for (name, file) in zones {
        let file = file.display();
        config += &format!(
            "auth-zone:\n  name: \"{name}\"\n  zonefile: \"{file}\"\n\
             \x20 for-downstream: no\n  for-upstream: yes\n  fallback-enabled: no\n"
        );
    }
    std::fs::write(folder.join("unbound.conf"), config).unwrap();
    let file = folder.join("unbound.conf");
    let child = Command::new(program).arg("-d").arg("-c").arg(file).spawn().unwrap();
    let unbound = Unbound(child, ([127, 0, 0, 1], port).into());
    soon("Unbound", async {
        while TcpStream::connect(unbound.1).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    Some(unbound)
}

/// Queries by UDP with EDNS, and by TCP if the answer is truncated.
async fn ask(resolver: SocketAddr, question: &Message) -> Message {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(resolver).await.unwrap();
    let bytes = question.to_vec().unwrap();
    let mut buffer = [0; 4096];
    let answer = soon("an answer", async {
        loop {
            socket.send(&bytes).await.unwrap();
            let wait = Duration::from_secs(3);
            if let Ok(Ok(length)) = tokio::time::timeout(wait, socket.recv(&mut buffer)).await {
                return Message::from_vec(&buffer[..length]).unwrap();
            }
        }
    })
    .await;
    if !answer.metadata.truncation {
        return answer;
    }
    let mut tcp = TcpStream::connect(resolver).await.unwrap();
    write(&mut tcp, question).await;
    soon("an answer", read(&mut tcp)).await.unwrap()
}

/// Part of an answer that depends only on the zone. TTLs count down (denials, their neighbours and
/// the zone's SOA start at 900 s, all others at 3600), and records of one set are unordered.
fn told(answer: &Message) -> (ResponseCode, [Vec<String>; 2], bool) {
    let is_of_soa = answer.queries.iter().any(|it| it.query_type() == RecordType::SOA);
    let least = if is_of_soa || !answer.authorities.is_empty() { 600 } else { 3300 };
    let section = |records: &[Record]| {
        let mut lines: Vec<_> = records
            .iter()
            .map(|it| {
                let (kind, data) = (it.record_type(), it.data.clone());
                assert!((least..=3600).contains(&it.ttl), "{kind} {}", it.ttl);
                format!("{} {kind} {data:?}", it.name.to_lowercase())
            })
            .collect();
        lines.sort();
        lines
    };
    let flags = &answer.metadata;
    let sections = [section(&answer.answers), section(&answer.authorities)];
    (flags.response_code, sections, flags.recursion_available)
}

/// Unbound and both gateways, until dropped.
struct Resolvers {
    unbound: Unbound,
    cabin: SocketAddr,
    resolver: ResolverHandle,
}

impl Resolvers {
    /// Starts both gateways; the ground gateway queries Unbound with these zones.
    async fn start(folder: &Path, zones: &[Zone]) -> Option<Self> {
        let unbound = unbound(folder, zones).await?;
        let dns = "dns = { listen = [\"127.0.0.1:0\"], queries-per-second-per-passenger = 100000 }";
        let mut configs = configs_with(dns, "");
        configs.ground.dns.servers = vec![unbound.1.to_string().parse().unwrap()];
        let (connector, acceptor) = over_link(&configs);
        start_ground(&configs, acceptor);
        let gateway = Air::bind(&configs.air, &mut Inherited::default(), connector).unwrap();
        let (cabin, resolver) = (gateway.dns_addrs()[0], gateway.resolver().unwrap());
        tokio::spawn(gateway.serve(std::future::pending()));
        Some(Self { unbound, cabin, resolver })
    }

    /// Queries the cabin twice, which queries the ground gateway once, and compares the answers
    /// with Unbound's.
    async fn compare(&self, (name, kind): (&str, &str), edns: Edns, id: usize) -> Message {
        let mut question = query(name, number(kind));
        question.metadata.id = id as u16;
        question.set_edns(edns);
        let expected = ask(self.unbound.1, &question).await;
        for _ in 0..2 {
            let answer = ask(self.cabin, &question).await;
            assert_eq!(told(&answer), told(&expected), "{name} {kind}");
            assert_eq!(answer.metadata.id, id as u16);
            assert_eq!(answer.queries, question.queries);
        }
        expected
    }
}

fn edns() -> Edns {
    Edns::new().set_max_payload(1232).clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_names_are_answered_as_by_unbound_itself() {
    let folder = tempfile::tempdir().unwrap();
    let zones = zones::write(folder.path());
    let Some(both) = Resolvers::start(folder.path(), &zones).await else { return };
    let (mut seen, mut of_zones) = (BTreeMap::<String, usize>::new(), 0);
    for n in 0..NAMES {
        let kind = match kind(n) {
            "CNAME" | "LOC" | "RP" | "URI" | "TYPE65280" | "SPF" | "HINFO" if n % 3 == 0 => "A",
            kind => kind,
        };
        // Some names lack this record, some do not exist, some match a wildcard.
        let (label, kind) = match n % 20 {
            7 => (format!("n{n}"), "MX"),
            13 => (format!("none{n}"), kind),
            17 => (format!("x{n}.wild"), "A"),
            _ => (format!("N{n}"), kind),
        };
        let name = format!("{label}.Synthetic.example.");
        let expected = both.compare((&name, kind), edns(), n).await;
        let code = expected.metadata.response_code;
        let answers = usize::from(!expected.answers.is_empty());
        *seen.entry(format!("{code} {answers}")).or_default() += 1;
        of_zones += usize::from(answers == 1 && matches!(kind, "NS" | "SOA"));
    }
    // The comparison covered answers, names without such a record, and names that do not exist.
    assert!(seen.len() >= 3 && seen["No Error 1"] > 700, "{seen:?}");
    assert!(of_zones > 60, "{of_zones} of who serves a zone and since when");
    let counts = both.resolver.counts();
    assert!(counts.hits >= NAMES as u64 && counts.missed >= 900, "{counts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signatures_and_signed_denials_pass_untouched_to_those_who_ask_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut zones = zones::write(folder.path());
    let Some(signed) = zones::write_signed(folder.path()) else { return };
    zones.push(signed);
    let Some(both) = Resolvers::start(folder.path(), &zones).await else { return };
    let with_signatures = || edns().set_dnssec_ok(true).clone();
    let has = |records: &[Record], kind| records.iter().any(|it| it.record_type() == kind);
    let (mut answers, mut denials) = (0, 0);
    for n in 0..SIGNED_NAMES {
        // Some names lack this record, some do not exist, some match a wildcard; the same holds for
        // subzones.
        let (label, kind) = match n % 8 {
            3 => (format!("n{n}"), if kind(n) == "A" { "MX" } else { "A" }),
            5 => (format!("none{n}"), kind(n)),
            7 => (format!("x{n}.wild"), "A"),
            _ => (format!("N{n}"), kind(n)),
        };
        let name = format!("{label}.signed.example.");
        let answer = both.compare((&name, kind), with_signatures(), n).await;
        let (told, denied) = (&answer.answers, &answer.authorities);
        assert!(has(told, RecordType::RRSIG) || has(denied, RecordType::RRSIG), "{name} {kind}");
        answers += usize::from(has(told, RecordType::RRSIG));
        denials += usize::from(has(denied, RecordType::NSEC));
        // A query that does not request them gets none, although they are cached.
        let plain = both.compare((&name, kind), edns(), n).await;
        let all = [&plain.answers[..], &plain.authorities[..]].concat();
        assert!(kind == "DNSKEY" || !has(&all, RecordType::RRSIG), "{name} {kind}");
    }
    for kind in ["SOA", "NS", "DNSKEY"] {
        let answer = both.compare(("signed.example.", kind), with_signatures(), 7).await;
        assert!(has(&answer.answers, RecordType::RRSIG), "{kind}");
    }
    assert!(answers > 50 && denials > 25, "{answers} answers, {denials} denials");
}
