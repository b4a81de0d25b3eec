//! A thousand names of every common type: through both gateways as from Unbound itself.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bentpipe_gateway::air::Air;
use bentpipe_gateway::net::Inherited;
use hickory_proto::op::{Edns, Message, ResponseCode};
use hickory_proto::rr::{Record, RecordType};
use tokio::net::{TcpStream, UdpSocket};

use crate::bench::soon;
use crate::dns::{query, read, write};
use crate::transports::{configs_with, over_link, start_ground};

/// The type's name, and what its data is.
type Type = (&'static str, fn(usize) -> String);

/// What names have, by turns: a type, and its data for the name's number in the zone.
const TYPES: [Type; 22] = [
    ("A", |n| format!("198.51.{}.{}", n / 250, 1 + n % 250)),
    ("AAAA", |n| format!("2001:db8::{n:x}")),
    ("CNAME", |n| format!("n{}.synthetic.example.", n / 22 * 22)),
    ("MX", |n| format!("{n} mail.synthetic.example.")),
    ("TXT", |n| format!("\"v=spf1 include:{n}\" \"and a second text\"")),
    ("NS", |n| format!("ns{n}.synthetic.example.")),
    ("SRV", |n| format!("10 {n} 443 n0.synthetic.example.")),
    ("PTR", |n| format!("host{n}.synthetic.example.")),
    ("CAA", |n| format!("0 issue \"ca{n}.example\"")),
    ("NAPTR", |n| format!("100 {n} \"s\" \"SIP+D2U\" \"\" _sip._udp.synthetic.example.")),
    ("SSHFP", |n| format!("4 2 {n:064x}")),
    ("TLSA", |n| format!("3 1 1 {n:064x}")),
    ("DS", |n| format!("{n} 13 2 {n:064x}")),
    ("DNSKEY", |n| format!("257 3 13 {}", key(n))),
    ("HTTPS", |n| format!("1 . alpn=h2,h3 port=8443 ech={}", key(n))),
    ("SVCB", |n| format!("{} svc.synthetic.example. alpn=dot port=853", 1 + n)),
    ("LOC", |_| "52 22 23.000 N 4 53 32.000 E -2.00m 0.00m 10000m 10m".into()),
    ("HINFO", |n| format!("\"cpu{n}\" \"os\"")),
    ("RP", |n| format!("who{n}.synthetic.example. text.synthetic.example.")),
    ("TYPE65280", |n| format!("\\# 6 c00c{n:08x}")),
    ("URI", |n| format!("10 1 \"https://www.example/{n}\"")),
    // More than a packet.
    ("SPF", |n| (0..20).fold(String::new(), |text, part| format!("{text} \"{part:>0100}{n}\""))),
];

const NAMES: usize = 1000;

/// Base64 of 16 bytes.
fn key(n: usize) -> String {
    use base64::prelude::*;
    BASE64_STANDARD.encode([n as u8; 16])
}

fn zone() -> String {
    let mut zone = String::from(
        "$ORIGIN synthetic.example.\n$TTL 3600\n\
         @ SOA ns.synthetic.example. who.synthetic.example. 1 7200 3600 86400 900\n\
         @ NS ns.synthetic.example.\nns A 198.51.100.1\n*.wild A 198.51.100.2\n",
    );
    for n in 0..NAMES {
        let (kind, data) = TYPES[n % TYPES.len()];
        // Delegations would lead away from here.
        let kind = if kind == "NS" { "MX" } else { kind };
        let data = if TYPES[n % TYPES.len()].0 == "NS" { format!("5 ns{n}") } else { data(n) };
        writeln!(zone, "n{n} {kind} {data}").unwrap();
    }
    zone
}

/// Unbound with the zone, until it is dropped.
struct Unbound(Child, SocketAddr);

impl Drop for Unbound {
    fn drop(&mut self) {
        // Fails only where it has ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `None`, visibly, where there is no Unbound.
async fn unbound(folder: &Path) -> Option<Unbound> {
    let program = ["unbound", "/usr/sbin/unbound"].into_iter().find(|program| {
        let mut version = Command::new(program);
        version.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
        version.status().is_ok_and(|status| status.success())
    });
    let Some(program) = program else {
        // Not by a macro, whose output the test harness keeps to itself.
        let why = "`scripts/setup.sh unbound` installs it";
        let mut seen = std::io::stderr();
        writeln!(seen, "SKIPPED: names are not compared with Unbound's: {why}").unwrap();
        return None;
    };
    // Not one of those that the system gives to other tests meanwhile.
    let first = 20_000 + (std::process::id() % 10_000) as u16;
    let is_free = |port: &u16| {
        let at = (std::net::Ipv4Addr::LOCALHOST, *port);
        std::net::UdpSocket::bind(at).is_ok() && std::net::TcpListener::bind(at).is_ok()
    };
    let port = (first..first + 1000).find(is_free).expect("a port is free");
    std::fs::write(folder.join("zone"), zone()).unwrap();
    let at = folder.display();
    let config = format!(
        "server:\n  interface: 127.0.0.1\n  port: {port}\n  username: \"\"\n  chroot: \"\"\n\
         \x20 directory: \"{at}\"\n  pidfile: \"{at}/pid\"\n  use-syslog: no\n  verbosity: 0\n\
         \x20 do-daemonize: no\n  access-control: 127.0.0.0/8 allow\n  module-config: \"iterator\"\n\
         \x20 num-threads: 1\n  minimal-responses: yes\n\
         remote-control:\n  control-enable: no\n\
         auth-zone:\n  name: \"synthetic.example\"\n  zonefile: \"{at}/zone\"\n\
         \x20 for-downstream: no\n  for-upstream: yes\n  fallback-enabled: no\n"
    );
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

/// By UDP with EDNS, and by TCP where that does not do.
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

/// What of an answer is the zone's: TTLs count down, and records of one set have no order.
fn told(answer: &Message) -> (ResponseCode, [Vec<String>; 2], bool) {
    let section = |records: &[Record]| {
        let mut lines: Vec<_> = records
            .iter()
            .map(|it| {
                assert!((3300..=3600).contains(&it.ttl) || it.record_type() == RecordType::SOA);
                let data = it.data.clone();
                format!("{} {} {data:?}", it.name.to_lowercase(), it.record_type())
            })
            .collect();
        lines.sort();
        lines
    };
    let flags = &answer.metadata;
    let sections = [section(&answer.answers), section(&answer.authorities)];
    (flags.response_code, sections, flags.recursion_available)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_names_are_answered_as_by_unbound_itself() {
    let folder = tempfile::tempdir().unwrap();
    let Some(unbound) = unbound(folder.path()).await else { return };
    let dns = "dns = { listen = [\"127.0.0.1:0\"], queries-per-second-per-passenger = 100000 }";
    let mut configs = configs_with(dns, "");
    configs.ground.dns.servers = vec![unbound.1.to_string().parse().unwrap()];
    let (far, arrivals) = over_link(&configs);
    start_ground(&configs, arrivals);
    let gateway = Air::bind(&configs.air, &mut Inherited::default(), far).unwrap();
    let (cabin, resolver) = (gateway.dns_addrs()[0], gateway.resolver().unwrap());
    tokio::spawn(gateway.serve(std::future::pending()));
    let mut seen = std::collections::BTreeMap::<String, usize>::new();
    for n in 0..NAMES {
        let kind = match TYPES[n % TYPES.len()].0 {
            "CNAME" | "LOC" | "RP" | "URI" | "TYPE65280" | "SPF" | "HINFO" if n % 3 == 0 => "A",
            kind => kind,
        };
        // Some names have no such record, some are not there, some are anything's.
        let (label, kind) = match n % 20 {
            7 => (format!("n{n}"), "MX"),
            13 => (format!("none{n}"), kind),
            17 => (format!("x{n}.wild"), "A"),
            _ => (format!("N{n}"), kind),
        };
        let mut question = query(&format!("{label}.Synthetic.example."), number(kind));
        question.metadata.id = n as u16;
        question.set_edns(Edns::new().set_max_payload(1232).clone());
        let expected = ask(unbound.1, &question).await;
        // The first is asked of the ground, the second is kept.
        for _ in 0..2 {
            let answer = ask(cabin, &question).await;
            assert_eq!(told(&answer), told(&expected), "{label} {kind}");
            assert_eq!(answer.metadata.id, n as u16);
            assert_eq!(answer.queries, question.queries);
        }
        let code = expected.metadata.response_code;
        let answers = usize::from(!expected.answers.is_empty());
        *seen.entry(format!("{code} {answers}")).or_default() += 1;
    }
    // It compared something: answers, names without such a record, and no such names.
    assert!(seen.len() >= 3 && seen["No Error 1"] > 700, "{seen:?}");
    let counts = resolver.counts();
    assert!(counts.hits >= NAMES as u64 && counts.missed >= 900, "{counts:?}");
}

fn number(kind: &str) -> RecordType {
    let number = match kind {
        "LOC" => 29,
        "RP" => 17,
        "DS" => 43,
        "DNSKEY" => 48,
        "SPF" => 99,
        "URI" => 256,
        "TYPE65280" => 65_280,
        known => return known.parse().unwrap(),
    };
    RecordType::from(number)
}
