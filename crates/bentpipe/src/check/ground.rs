//! Explanation of `ground.toml`.

use bentpipe_gateway::config::{
    AircraftConfig, Beam, Dial, EgressConfig, EgressKind, GroundConfig, LeaseSource, LegTransport,
    Memory, SourceAddress,
};

use bentpipe_gateway::ground::descriptors::Fitted;
use bentpipe_gateway::ground::{ports, sources};
use bentpipe_gateway::transports::link;
use bentpipe_link::MAX_RATE;
use bentpipe_net::descriptors::descriptor_limit;
use bentpipe_units::ByteSize;

use super::rows::{aerotcp_windows, classes, memory, packets, status};
use crate::sheet::Sheet;

pub fn ground(config: &GroundConfig) -> Sheet {
    let mut sheet = Sheet::new("ground gateway");
    sheet.row("own key", config.link.private_key.public());
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
        let (name, class) = (&client.login.name, client.highest_class);
        let (tcp, udp) = (client.max_flows, client.max_datagram_flows);
        let text = format!("{name} (token): {tcp} flows, {udp} of UDP, up to {class}");
        sheet.row("client", text);
    }
    if let Some(it) = &config.beam {
        beam(&mut sheet, it, &config.aircraft);
    }
    for egress in &config.egresses {
        sheet.row("egress", egress_text(egress));
    }
    if config.aircraft.is_empty() && config.clients.is_empty() {
        sheet.row("aircraft", "none: nobody will be served");
    }
    dials(&mut sheet, &config.dial);
    countries(&mut sheet, config);
    if let Some(shortage) = ports::shortage(config, ports::Range::of_kernel()) {
        sheet.row("note", shortage);
    }
    if let Some(shortage) = Fitted::of(config, descriptor_limit()).shortage {
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
        let how = if site.client.is_some() { "over TLS" } else { "in clear" };
        sheet.row("pages of", format!("{}, from {} {how}", site.name.as_str(), site.origin));
    }
    status(&mut sheet, config.status.as_ref());
    sheet
}

fn egress_text(egress: &EgressConfig) -> String {
    let EgressConfig { peer, kind, .. } = egress;
    match kind {
        EgressKind::Gateway { transport: LegTransport::Masque, public_key } => {
            format!("{peer}, by HTTP/3, key {public_key}")
        }
        EgressKind::Gateway { transport: LegTransport::Link, public_key } => {
            format!("{peer}, by the radio transport, key {public_key}")
        }
        EgressKind::Proxy(proxy) => {
            let how = if proxy.is_authorized() { "with" } else { "without" };
            format!(
                "{peer}, a MASQUE proxy, {how} authorization: TCP of aircraft that keep flows, and UDP"
            )
        }
    }
}

/// Adds rows about destinations and source addresses.
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
        let sources = dial.sources.iter().map(source_text).collect();
        sheet.row("", format!("from {}", listed(sources)));
    }
    for source in sources::missing(&dial.sources) {
        let text = format!("this machine has no address {source} now: `ip address` lists them");
        sheet.row("note", text);
    }
}

fn source_text(source: &SourceAddress) -> String {
    match &source.place {
        Some(place) => format!("{} ({})", source.ip, place.country),
        None => source.ip.to_string(),
    }
}

/// Adds a note for each aircraft in whose country no source of a family is.
fn countries(sheet: &mut Sheet, config: &GroundConfig) {
    let sources = &config.dial.sources;
    for one in &config.aircraft {
        let Some(country) = one.country else { continue };
        for (family, is_v4) in [("IPv4", true), ("IPv6", false)] {
            let mut all = sources.iter().filter(|source| source.ip.is_ipv4() == is_v4).peekable();
            let is_there = |source: &SourceAddress| {
                source.place.as_ref().is_some_and(|place| place.country == country)
            };
            if all.peek().is_some() && !all.any(is_there) {
                let name = &one.name;
                let text = format!("{name}: no {family} address of sources is in {country}");
                sheet.row("note", text + ", so it gets any");
            }
        }
    }
}

/// Adds a row about the memory of all sessions, compared with the sum of their own limits.
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
    sheet.row("aircraft", format!("{}, key {}", one.name, one.key));
    let (rate, class) = (one.rate, one.highest_class);
    let is_set = rate != MAX_RATE;
    let sends = match one.lease {
        LeaseSource::Learned if is_set => {
            format!("what the path is measured to carry, up to {rate}")
        }
        LeaseSource::Learned => "what the path is measured to carry".to_owned(),
        LeaseSource::None => format!("what CUBIC finds, up to {rate}"),
        _ if is_set => rate.to_string(),
        _ => "its part of the beam".to_owned(),
    };
    let (tcp, udp) = (one.max_flows, one.max_datagram_flows);
    sheet.row("", format!("{sends}; {tcp} flows, {udp} of UDP, up to {class}"));
    if config.link.listen.is_some() {
        sheet.row("memory", memory(&one.memory.unwrap_or(config.link.memory)));
    }
    if config.link.listen.is_some() || config.link.aerotcp_listen.is_some() {
        packets(sheet, one.mtu.unwrap_or(config.link.mtu));
    }
    classes(sheet, &one.classes, rate, "is sent");
}

fn beam(sheet: &mut Sheet, beam: &Beam, aircraft: &[AircraftConfig]) {
    let weights: u32 = aircraft.iter().map(|one| one.share.weight).sum();
    for (name, rate) in [("to all", beam.forward), ("from all", beam.return_)] {
        if let Some(rate) = rate {
            sheet.row("beam", format!("{rate} {name}, divided by demand and weight"));
        }
    }
    for one in aircraft {
        let share = one.share;
        let text = format!("{}: {} of {weights}, over {}", one.name, share.weight, share.floor);
        sheet.row("", text);
    }
}
