//! Zones for the queries: one with names of every common type, subzones for types that occur only
//! at an apex, and a signed zone.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hickory_proto::rr::RecordType;

/// Name of the type, and a function that makes its data.
type Type = (&'static str, fn(usize) -> String);

/// Number of types.
const TYPES: usize = 23;

/// Records of the names, in rotation: a type, and its data for the name's number in the zone.
const DATA: [Type; TYPES] = [
    ("A", |n| format!("198.51.{}.{}", n / 250, 1 + n % 250)),
    ("AAAA", |n| format!("2001:db8::{n:x}")),
    ("CNAME", |n| format!("n{}.synthetic.example.", n / TYPES * TYPES)),
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
    ("SOA", |n| format!("ns{n}.synthetic.example. who{n}.example. {n} 7200 3600 86400 900")),
    ("TYPE65280", |n| format!("\\# 6 c00c{n:08x}")),
    ("URI", |n| format!("10 1 \"https://www.example/{n}\"")),
    // Larger than a packet.
    ("SPF", |n| (0..20).fold(String::new(), |text, part| format!("{text} \"{part:>0100}{n}\""))),
];

/// Number of names in `synthetic.example`, called n0 and so on.
pub const NAMES: usize = 1000;

/// Number of names in `signed.example`.
pub const SIGNED_NAMES: usize = 4 * TYPES;

/// Name of a zone, and its file.
pub type Zone = (String, PathBuf);

/// Type of the name with this number in its zone.
pub fn kind(n: usize) -> &'static str {
    DATA[n % TYPES].0
}

/// Number of the type with this name.
pub fn number(kind: &str) -> RecordType {
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

/// Base64 of 16 bytes.
fn key(n: usize) -> String {
    use base64::prelude::*;
    BASE64_STANDARD.encode([n as u8; 16])
}

/// Returns `true` if the type occurs only at a zone's apex: such a name is its own zone.
fn is_apex(kind: &str) -> bool {
    matches!(kind, "NS" | "SOA")
}

fn data(kind: &str, n: usize) -> String {
    DATA.iter().find(|(known, _)| *known == kind).map(|(_, data)| data(n)).unwrap()
}

fn head(zone: &str) -> String {
    format!(
        "$ORIGIN {zone}.\n$TTL 3600\n\
         @ SOA ns.{zone}. who.{zone}. 1 7200 3600 86400 900\n\
         @ NS ns.{zone}.\nns A 198.51.100.1\n*.wild A 198.51.100.2\n"
    )
}

/// Writes `synthetic.example` and its subzones.
pub fn write(folder: &Path) -> Vec<Zone> {
    let file = |zone: &str, text: String| {
        let path = folder.join(zone);
        std::fs::write(&path, text).unwrap();
        (zone.to_owned(), path)
    };
    let (mut zone, mut zones) = (head("synthetic.example"), Vec::new());
    for n in 0..NAMES {
        if is_apex(kind(n)) {
            let (name, ns) = (format!("n{n}.synthetic.example"), data("NS", n));
            writeln!(zone, "n{n} NS {ns}").unwrap();
            let soa = data("SOA", n);
            let own = format!("$ORIGIN {name}.\n$TTL 3600\n@ SOA {soa}\n@ NS {ns}\n@ NS ns.{ns}\n");
            zones.push(file(&name, own));
        } else {
            writeln!(zone, "n{n} {} {}", kind(n), data(kind(n), n)).unwrap();
        }
    }
    zones.push(file("synthetic.example", zone));
    zones
}

/// Writes `signed.example`: names of each type that does not require an apex, signed with a new
/// key. If the signing tool is not installed, prints a notice and returns `None`.
pub fn write_signed(folder: &Path) -> Option<Zone> {
    let (zone, plain) = ("signed.example", folder.join("unsigned"));
    let mut text = head(zone);
    for n in (0..SIGNED_NAMES).filter(|n| !is_apex(kind(*n))) {
        writeln!(text, "n{n} {} {}", kind(n), data(kind(n), n)).unwrap();
    }
    std::fs::write(&plain, text).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(folder).stderr(Stdio::inherit());
        command.output().ok()
    };
    let Some(made) = run("ldns-keygen", &["-a", "ECDSAP256SHA256", zone]) else {
        // Not by a macro, because the test harness captures its output.
        let why = "`scripts/setup.sh unbound` installs what signs it";
        let mut seen = std::io::stderr();
        writeln!(seen, "SKIPPED: a signed zone is not compared: {why}").unwrap();
        return None;
    };
    assert!(made.status.success(), "no key: {made:?}");
    let key = String::from_utf8(made.stdout).unwrap();
    let path = folder.join(zone);
    let to = path.to_str().unwrap();
    let signed =
        run("ldns-signzone", &["-f", to, "unsigned", key.trim()]).expect("it is there too");
    assert!(signed.status.success(), "the zone is not signed: {signed:?}");
    Some((zone.into(), path))
}
