//! `bentpipe check`: what a configuration means, or what is wrong with it.

use std::error::Error;
use std::fmt::Display;
use std::path::Path;

use bentpipe_gateway::config::{
    AeroTcp, AirConfig, AirDns, AirLink, AircraftConfig, Beam, ClassConfig, Classes, ConfigError,
    Detail, Dial, GroundConfig, LeaseSource, Listen, Memory, ModemConfig, ModemSource, Preload,
    Quic, StatusConfig, Transport, Which, WindowKind,
};
use bentpipe_gateway::far::{aerotcp, link};
use bentpipe_gateway::ground::{ports, sources};
use bentpipe_gateway::rate::dlep::Finding;
use bentpipe_link::IDLE_GRANT;
use bentpipe_units::{BitRate, ByteSize};

use crate::out::{say, show};
use crate::sheet::Sheet;

/// MTU of most paths.
const ETHERNET_MTU: usize = 1500;

/// Says what a configuration means. Which gateway it is for shows in its tables.
pub fn run(file: &Path) -> Result<(), Box<dyn Error>> {
    show!("{}", describe(file)?);
    say!("{}: no errors", file.display());
    Ok(())
}

fn describe(file: &Path) -> Result<Sheet, Box<dyn Error>> {
    let shown = file.display();
    let complain =
        |error: &dyn Display| format!("{shown}: the link cannot work like this: {error}");
    let complain_of_aerotcp =
        |error: &dyn Display| format!("{shown}: AeroTCP cannot work like this: {error}");
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {shown}: {error}\nname a configuration in TOML"))?;
    // A text that is neither's is an air's, which says what it lacks.
    if Which::of(&text) == Some(Which::Ground) {
        let config = GroundConfig::parse(file, &text)?;
        if config.link.listen.is_some() {
            link::hub_config(&config).map_err(|error| complain(&error))?;
        }
        if config.link.aerotcp_listen.is_some() {
            aerotcp::ground_config(&config).map_err(|error| complain_of_aerotcp(&error))?;
        }
        return Ok(ground(&config));
    }
    let config = AirConfig::parse(file, &text)?;
    let anywhere = ([127, 0, 0, 1], 0).into();
    if config.link.transport == Transport::Link {
        link::air_config(&config, anywhere, 0).map_err(|error| complain(&error))?;
    }
    if config.link.transport == Transport::AeroTcp || config.aerotcp.is_some() {
        aerotcp::air_config(&config, anywhere, 0).map_err(|error| complain_of_aerotcp(&error))?;
    }
    let mut sheet = air(&config);
    if let Some(preload) = &config.preload {
        ahead(&mut sheet, &config, preload)?;
    }
    Ok(sheet)
}

/// The portal's content.
fn ahead(sheet: &mut Sheet, config: &AirConfig, preload: &Preload) -> Result<(), ConfigError> {
    let sites: Vec<_> = config.sites.iter().map(|site| site.loaded().name.clone()).collect();
    let manifest = preload.check_manifest(&sites)?;
    let when = match preload.window {
        Some(window) => format!("each day at {window} UTC"),
        None => "when `bentpipe preload --now` asks for it".to_owned(),
    };
    let (count, most) = (manifest.addresses.len(), preload.largest_run);
    let text = format!("{count} addresses {when}, {most} at most, in {}", preload.class);
    sheet.row("preloads", text);
    sheet.row("", format!("told in {}", preload.report.display()));
    let Some(cache) = &config.http_cache else { return Ok(()) };
    if cache.directory().is_none() {
        let text = "what is preloaded is lost at every restart: [http-cache] has no directory";
        sheet.row("note", text);
    }
    let room = cache.directory().map_or(cache.memory, |_| cache.disk.max(cache.memory));
    if most.bytes() > room.bytes() / 2 {
        let text = format!("no more than half of the cache's {room} can be pinned");
        sheet.row("note", text);
    }
    Ok(())
}

fn air(config: &AirConfig) -> Sheet {
    let link = &config.link;
    let mut sheet = Sheet::new("air gateway");
    sheet.row("own key", link.private_key().public());
    sheet.row("calls", &link.peer);
    sheet.row("its key", link.peer_public_key());
    let over = match link.transport {
        Transport::Link => format!("the radio transport, sending {}", lease(link)),
        Transport::Masque => "HTTP/3, finding its own rate".to_owned(),
        Transport::AeroTcp => format!("AeroTCP, {}", aerotcp_windows(config.aerotcp.as_ref())),
    };
    sheet.row("over", format!("{over}; to the ground's {}", link.transport.listen_key()));
    if link.transport != Transport::Masque {
        packets(&mut sheet, link.mtu);
        sheet.row("state", format!("kept in {}", link.state_file().display()));
    }
    if link.transport == Transport::Link {
        sheet.row("memory", memory(&link.memory));
    }
    if let Some(modem) = &link.modem {
        sheet.row("modem", modem_said(modem));
    }
    listeners(&mut sheet, &config.listen);
    classes(&mut sheet, &config.classes, link.rate, "sends");
    let rules = &config.rules;
    sheet.row("rules", format!("{}; {} for what none matches", rules.rules.len(), rules.default));
    if let Some(cache) = &config.http_cache {
        let place = match cache.directory() {
            Some(directory) => format!("{} in {}", cache.disk, directory.display()),
            None => "nothing on disk".to_owned(),
        };
        sheet.row("HTTP cache", format!("{} in memory, {place}", cache.memory));
    }
    for site in &config.sites {
        let site = site.loaded();
        let how = if site.client.is_some() { "over TLS" } else { "in clear" };
        let whole = if site.split_http { "; pages whole from the ground" } else { "" };
        let text = format!("{}, from {} {how}{whole}", site.name.as_str(), site.origin);
        sheet.row("answers for", text);
    }
    if let Some(page) = &config.page {
        sheet.row("passengers' page", format!("http://{}/", page.listen));
    }
    if let Some(usage) = &config.usage {
        let directory = usage.directory.display();
        sheet.row("usage", format!("written to {directory} every {}", usage.interval));
    }
    if let Some(pages) = &config.split_http {
        let text = format!(
            "fetched whole at the ground, {} at most in vain; {} for {}",
            pages.waste, pages.memory, pages.keep
        );
        sheet.row("pages", text);
    }
    if let Some(dns) = &config.dns {
        names(&mut sheet, dns, config.listen.tproxy.is_some());
    }
    status(&mut sheet, config.status.as_ref());
    let limits = &config.limits;
    let (all, each) = (limits.max_flows, limits.max_flows_per_passenger);
    sheet.row("flows", format!("{all} of TCP, {each} a passenger"));
    let (all, each) = (limits.udp.max_flows, limits.udp.max_flows_per_passenger);
    sheet.row("", format!("{all} of UDP, {each} a passenger"));
    sheet
}

/// The resolver on board.
fn names(sheet: &mut Sheet, dns: &AirDns, tproxy: bool) {
    let mut whom: Vec<_> = dns.listen().map(|address| format!("at {address}")).collect();
    if dns.intercept && tproxy {
        whom.push("whoever asks any resolver".to_owned());
    }
    if let Some(encrypted) = &dns.encrypted {
        whom.extend(encrypted.tls.iter().map(|address| format!("over TLS at {address}")));
        whom.extend(encrypted.https.iter().map(|address| format!("over HTTPS at {address}")));
    }
    sheet.row("DNS", format!("answered on board {}", whom.join(" and ")));
    match &dns.cache_file {
        Some(file) => sheet.row("", format!("kept over restarts in {}", file.display())),
        None => sheet.row("", "forgotten at every restart: there is no cache-file"),
    }
    let taken = ByteSize::from_bytes(dns.settings().warm_start_bytes.into());
    if taken.bytes() > 0 {
        sheet.row("", format!("{taken} of the ground's at most, where nothing is kept"));
    }
    if let Some(pool) = dns.pool_networks() {
        sheet.row("instant", format!("addresses for {pool}"));
    }
}

fn listeners(sheet: &mut Sheet, listen: &Listen) {
    if let Some(address) = listen.socks5 {
        sheet.row("SOCKS5", address);
    }
    if let Some(address) = listen.http_proxy {
        sheet.row("HTTP proxy", address);
    }
    if let Some(auth) = &listen.auth {
        sheet.row("password", format!("asked for by the proxies, of user {:?}", auth.username));
    }
    if !listen.clients.is_empty() {
        let networks: Vec<_> = listen.clients.iter().map(ToString::to_string).collect();
        sheet.row("clients", format!("of the proxies: {}", networks.join(", ")));
    }
    if let Some(tproxy) = &listen.tproxy {
        let names: Vec<_> = tproxy.interfaces.iter().map(|name| name.get_ref().as_str()).collect();
        let text = format!("TCP and UDP from {} (port {})", names.join(", "), tproxy.port);
        sheet.row("intercepts", text);
        if tproxy.fail_closed {
            sheet.row("", "what is not carried is dropped, also while no gateway runs");
        }
        for name in names.iter().filter(|name| !has_interface(name)) {
            let text = format!("this machine has no interface {name:?} now: `ip link` lists them");
            sheet.row("note", text);
        }
    }
    sheet.row(
        "QUIC",
        match listen.quic {
            Quic::Carry => "carried, as all UDP",
            Quic::Reject => "rejected: browsers use TCP",
        },
    );
}

/// Describes the status file: its place and its contents.
fn status(sheet: &mut Sheet, config: Option<&StatusConfig>) {
    let Some(config) = config else { return };
    let (file, interval) = (config.file.display(), config.interval);
    let told = match config.detail {
        Detail::Classes => "of classes alone",
        Detail::Passengers => "of classes and passengers, which is personal data",
        Detail::Flows => "of classes, passengers and flows, which is personal data",
    };
    sheet.row("status", format!("written to {file} every {interval}: {told}"));
    let directory = config.file.parent().filter(|it| *it != Path::new(""));
    if let Some(directory) = directory.filter(|it| !it.is_dir()) {
        let directory = directory.display();
        sheet.row("note", format!("there is no directory {directory} now: the gateway makes none"));
    }
}

fn has_interface(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

fn packets(sheet: &mut Sheet, mtu: usize) {
    sheet
        .row("packets", format!("up to {mtu} bytes, IP header included, if the path carries them"));
    if mtu > ETHERNET_MTU {
        let text = format!(
            "an mtu of {mtu} is more than Ethernet's {ETHERNET_MTU}: write what the path is \
             provisioned for"
        );
        sheet.row("note", text);
    }
}

fn memory(memory: &Memory) -> String {
    let Memory { receive, send, code } = memory;
    format!("{receive} received, {send} to send, {code} for repairs")
}

fn modem_said(modem: &ModemConfig) -> String {
    let who = match &modem.source {
        ModemSource::Dlep(Finding::At(address)) => format!("tells its rate by DLEP from {address}"),
        ModemSource::Dlep(Finding::On(interface)) => {
            format!("is looked for on {interface} and tells its rate by DLEP")
        }
        ModemSource::File(file) => format!("has its rate written to {}", file.display()),
    };
    format!("{who}; {} bytes of framing a packet", modem.framing_bytes)
}

fn aerotcp_windows(table: Option<&AeroTcp>) -> String {
    let Some(table) = table else { return "not told of the satellite".to_owned() };
    let window = match (table.window, table.connections) {
        (WindowKind::Static, Some(n)) => format!("static windows for {n} connections"),
        (WindowKind::Static, None) => "static windows".to_owned(),
        (WindowKind::Adaptive, _) => "windows by the connections that are open".to_owned(),
        (WindowKind::Table, _) => format!("windows from a table of {}", table.table.len()),
    };
    format!("{window}, round trip {}", table.rtt)
}

/// Lease, and its source.
fn lease(link: &AirLink) -> String {
    let rate = link.rate;
    match link.lease {
        LeaseSource::Static => rate.to_string(),
        LeaseSource::Granted => format!(
            "what the ground grants, up to {rate} ({IDLE_GRANT} until then; the ground needs a [beam])"
        ),
        LeaseSource::None => format!("what CUBIC finds, up to {rate}"),
        LeaseSource::Modem => {
            format!("what the modem says, up to {rate} ({IDLE_GRANT} while it says nothing)")
        }
    }
}

/// Guaranteed rate and ceiling of each class, and remarks on them.
fn classes(sheet: &mut Sheet, classes: &Classes, rate: BitRate, does: &str) {
    for (class, config) in classes.iter() {
        sheet.row("class", format!("{class} {does} {}", shares(config)));
    }
    for remark in classes.remarks(rate) {
        sheet.row("note", remark);
    }
}

/// In words, what a class may count on and take.
pub fn shares(config: &ClassConfig) -> String {
    match (config.rate(), config.ceil()) {
        (Some(rate), Some(ceil)) if rate.bps() == 0 => format!("what is left, {ceil} at most"),
        (Some(rate), None) if rate.bps() == 0 => "what is left".to_owned(),
        (Some(rate), Some(ceil)) => format!("{rate} whenever it asks, {ceil} at most"),
        (Some(rate), None) => format!("{rate} whenever it asks, all of an idle link"),
        (None, Some(ceil)) => format!("its share, {ceil} at most"),
        (None, None) => "its share, all of an idle link".to_owned(),
    }
}

fn ground(config: &GroundConfig) -> Sheet {
    let mut sheet = Sheet::new("ground gateway");
    sheet.row("own key", config.link.private_key().public());
    if let Some(address) = config.link.listen {
        sheet.row("radio link", format!("{address}/udp"));
    }
    if let Some(address) = config.link.masque_listen {
        sheet.row("HTTP/3", format!("{address}/udp"));
    }
    if let Some(address) = config.link.aerotcp_listen {
        let windows = aerotcp_windows(config.aerotcp.as_ref());
        sheet.row("AeroTCP", format!("{address}/udp, {windows}"));
    }
    for one in &config.aircraft {
        aircraft(&mut sheet, config, one);
    }
    if config.link.listen.is_some() && !config.aircraft.is_empty() {
        all_sessions(&mut sheet, config);
    }
    for client in &config.clients {
        let (name, class) = (client.name(), client.highest_class);
        let (tcp, udp) = (client.max_flows, client.max_datagram_flows);
        let text = format!("{name} (token): {tcp} flows, {udp} of UDP, up to {class}");
        sheet.row("client", text);
    }
    if let Some(it) = config.beam() {
        beam(&mut sheet, it, &config.aircraft);
    }
    if config.aircraft.is_empty() && config.clients.is_empty() {
        sheet.row("aircraft", "none: nobody will be served");
    }
    dials(&mut sheet, &config.dial);
    if let Some(shortage) = ports::shortage(config, ports::Range::of_kernel()) {
        sheet.row("note", shortage);
    }
    let servers: Vec<_> = config.dns.servers.iter().map(|server| server.0.to_string()).collect();
    let asked = if servers.is_empty() { "the system's".to_owned() } else { servers.join(", ") };
    sheet.row("name servers", asked);
    if let Some(rate) = config.dns.push_rate {
        let text =
            format!("at {rate}, names that an aircraft used to ask for, where it takes them");
        sheet.row("pushes", text);
    }
    if let Some(pages) = &config.split_http {
        let text = format!(
            "{} at once, {} an aircraft; {} objects of {} and {} at most, for {}",
            pages.pages,
            pages.per_aircraft,
            pages.objects,
            pages.largest_object,
            pages.largest_page,
            pages.longest
        );
        sheet.row("pages", text);
    }
    for site in &config.sites {
        let site = site.upstream();
        let how = if site.client.is_some() { "over TLS" } else { "in clear" };
        sheet.row("pages of", format!("{}, from {} {how}", site.name.as_str(), site.origin));
    }
    status(&mut sheet, config.status.as_ref());
    sheet
}

/// Destinations, and the addresses that they are dialled from.
fn dials(sheet: &mut Sheet, dial: &Dial) {
    let listed = |items: Vec<String>| items.join(", ");
    let allowed: Vec<_> = dial.allow.iter().map(ToString::to_string).collect();
    if allowed.is_empty() {
        sheet.row("dials", "public addresses only, and no neighbours");
    } else {
        sheet.row("dials", format!("public addresses, and {}", listed(allowed)));
    }
    if dial.deny.is_empty() {
        sheet.row("note", "nothing is denied: neither mail (25/tcp) nor 168.63.129.16 (Azure)");
    } else {
        let denied = dial.deny.iter().map(ToString::to_string).collect();
        sheet.row("", format!("never {}", listed(denied)));
    }
    if !dial.sources.is_empty() {
        let sources = dial.sources.iter().map(ToString::to_string).collect();
        sheet.row("", format!("from {}", listed(sources)));
    }
    for source in sources::missing(&dial.sources) {
        let text = format!("this machine has no address {source} now: `ip address` lists them");
        sheet.row("note", text);
    }
}

/// Memory of all sessions, beside the sum of their own bounds.
fn all_sessions(sheet: &mut Sheet, config: &GroundConfig) {
    let bound = |one: &AircraftConfig| {
        let Memory { receive, send, code } = one.memory.unwrap_or(config.link.memory);
        [receive, send, code].iter().fold(0u64, |sum, size| sum.saturating_add(size.bytes()))
    };
    let sum = config.aircraft.iter().map(bound).fold(0u64, u64::saturating_add);
    let (total, sum) = (link::total_memory(config), ByteSize::from_bytes(sum));
    sheet.row("all sessions", format!("{total} of memory; their own bounds come to {sum}"));
    sheet.row("", format!("one ends after {} of silence", config.link.session_lifetime));
    if sum > total {
        let text = "where that is short, nothing more is lent, and silent sessions end first";
        sheet.row("", text);
    }
}

fn aircraft(sheet: &mut Sheet, config: &GroundConfig, one: &AircraftConfig) {
    sheet.row("aircraft", format!("{}, key {}", one.name, one.key()));
    let finds = if one.leased { "" } else { "what CUBIC finds, up to " };
    let (rate, class) = (one.rate, one.highest_class);
    let (tcp, udp) = (one.max_flows, one.max_datagram_flows);
    sheet.row("", format!("{finds}{rate}; {tcp} flows, {udp} of UDP, up to {class}"));
    if config.link.listen.is_some() {
        sheet.row("memory", memory(&one.memory.unwrap_or(config.link.memory)));
    }
    if config.link.listen.is_some() || config.link.aerotcp_listen.is_some() {
        packets(sheet, one.mtu.unwrap_or(config.link.mtu));
    }
    classes(sheet, &one.classes, rate, "is sent");
}

fn beam(sheet: &mut Sheet, beam: &Beam, aircraft: &[AircraftConfig]) {
    let weights: u32 = aircraft.iter().map(|one| one.share().weight).sum();
    for (name, rate) in [("to all", beam.forward), ("from all", beam.return_)] {
        if let Some(rate) = rate {
            sheet.row("beam", format!("{rate} {name}, divided by demand and weight"));
        }
    }
    for one in aircraft {
        let share = one.share();
        let text = format!("{}: {} of {weights}, over {}", one.name, share.weight, share.floor);
        sheet.row("", text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    fn described(name: &str, text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("own.key"), KEY).unwrap();
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        let text = describe(&file).unwrap().to_string();
        let folder = format!("{}/", folder.path().display());
        for line in text.lines().filter(|line| !line.contains(&folder)) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        text.replace(&folder, "")
    }

    #[test]
    fn an_air_gateway_is_described() {
        let text = described(
            "air.toml",
            &format!(
                "[link]\nprivate-key-file = \"own.key\"\npeer = \"hub.example.net:4500\"\n\
                 peer-public-key = \"{KEY}\"\nrate = \"1.89 Mbit/s\"\nmtu = 9000\n\
                 lease = \"granted\"\n[listen]\nsocks5 = \"127.0.0.1:1080\"\nquic = \"reject\"\n\
                 tproxy = {{ port = 1081, interfaces = [\"no-such-if0\"] }}\n\
                 auth = {{ username = \"crew\", password = \"secret\" }}\n"
            ),
        );
        let expected = format!(
            "air gateway
  own key       j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=
  calls         hub.example.net:4500
  its key       {KEY}
  over          the radio transport, sending what the ground grants, up to 1.89
                Mbit/s (16 kbit/s until then; the ground needs a [beam]); to the
                ground's listen
  packets       up to 9000 bytes, IP header included, if the path carries them
  note          an mtu of 9000 is more than Ethernet's 1500: write what the path
                is provisioned for
  state         kept in own.state
  memory        512 MiB received, 256 MiB to send, 16 MiB for repairs
  SOCKS5        127.0.0.1:1080
  password      asked for by the proxies, of user \"crew\"
  intercepts    TCP and UDP from no-such-if0 (port 1081)
  note          this machine has no interface \"no-such-if0\" now: `ip link` lists
                them
  QUIC          rejected: browsers use TCP
  rules         0; best-effort for what none matches
  flows         4096 of TCP, 1024 a passenger
                4096 of UDP, 1024 a passenger
"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn a_ground_gateway_is_described() {
        let text = described(
            "ground.toml",
            &format!(
                "[link]\nprivate-key-file = \"own.key\"\nlisten = \"[::]:4500\"\n\
                 total-memory = \"512 MiB\"\n[[aircraft]]\n\
                 name = \"D-ABCD\"\npublic-key = \"{KEY}\"\nrate = \"1.89 Mbit/s\"\n\
                 highest-class = \"network\"\nmemory = {{ send = \"32 MiB\" }}\n\
                 [dns]\nservers = [\"9.9.9.9\"]\npush-rate = \"32 kbit/s\"\n"
            ),
        );
        let expected = format!(
            "ground gateway
  own key       j0DFrbaPJWJK5bIU6nZ6bslNgp09e14a0bpvPiE4KF8=
  radio link    [::]:4500/udp
  aircraft      D-ABCD, key {KEY}
                1.89 Mbit/s; 4096 flows, 4096 of UDP, up to network
  memory        512 MiB received, 32 MiB to send, 16 MiB for repairs
  packets       up to 1500 bytes, IP header included, if the path carries them
  all sessions  512 MiB of memory; their own bounds come to 560 MiB
                one ends after 900 s of silence
                where that is short, nothing more is lent, and silent sessions
                end first
  dials         public addresses only, and no neighbours
                never 168.63.129.16/32, 25/tcp
  name servers  9.9.9.9:53
  pushes        at 32 kbit/s, names that an aircraft used to ask for, where it
                takes them
"
        );
        assert_eq!(text, expected);
    }

    /// The example of a cabin in a folder of its own, with keys and certificates beside it.
    fn cabin() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        for key in ["air.key", "ground.key"] {
            write(key, KEY);
        }
        for (file, name) in [("portal", "portal.example"), ("resolver", "dns.portal.example")] {
            let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
            write(&format!("{file}.pem"), &made.cert.pem());
            write(&format!("{file}.key"), &made.signing_key.serialize_pem());
        }
        // Whom this machine trusts is not the example's business.
        let air = include_str!("../../../examples/cabin/air.toml");
        let ground = include_str!("../../../examples/cabin/ground.toml");
        let origin = "origin = \"https://portal.example\"\n";
        assert!(air.contains(origin));
        write("air.toml", &air.replace(origin, &format!("{origin}origin-ca = \"portal.pem\"\n")));
        let name = "[[site]]\nname = \"portal.example\"\n";
        assert!(ground.contains(name));
        write("ground.toml", &ground.replace(name, &format!("{name}origin-ca = \"portal.pem\"\n")));
        write("portal.txt", include_str!("../../../examples/cabin/portal.txt"));
        folder
    }

    #[test]
    fn the_example_of_a_cabin_is_without_errors() {
        let folder = cabin();
        let air = describe(&folder.path().join("air.toml")).unwrap().to_string();
        for says in [
            "preloads      5 addresses each day at 02:00-05:00 UTC, 512 MiB at most, in",
            "told in /var/lib/bentpipe/preload.json",
            "answers for   portal.example",
            "DNS           answered on board at 10.0.0.1:53",
            "HTTP cache    128 MiB in memory, 4 GiB in /var/cache/bentpipe",
            "passengers' page http://10.0.0.1:80/",
        ] {
            assert!(air.contains(says), "{says}: {air}");
        }
        let ground = describe(&folder.path().join("ground.toml")).unwrap().to_string();
        assert!(ground.contains("pages"), "{ground}");
    }

    #[test]
    fn a_manifest_that_cannot_be_followed_is_told_with_its_line() {
        let folder = cabin();
        let file = folder.path().join("air.toml");
        let complaint = || describe(&file).err().unwrap().to_string();
        let manifest = folder.path().join("portal.txt");
        std::fs::write(&manifest, "# films\nhttps://elsewhere.example/\n").unwrap();
        let told = complaint();
        assert!(told.contains("portal.txt, line 2: elsewhere.example is none of"), "{told}");
        std::fs::remove_file(&manifest).unwrap();
        let told = complaint();
        assert!(told.contains("cannot be read") && told.contains("one address a line"), "{told}");
        let text = std::fs::read_to_string(&file).unwrap().replace("02:00-05:00", "2-5");
        std::fs::write(&file, text).unwrap();
        let told = complaint();
        assert!(told.contains("is no part of a day") && told.contains("window = "), "{told}");
    }

    #[test]
    fn the_wrong_says_where() {
        let error = describe(Path::new("/none/air.toml")).err().unwrap().to_string();
        assert!(error.starts_with("cannot read /none/air.toml: No such file"), "{error}");
    }
}
