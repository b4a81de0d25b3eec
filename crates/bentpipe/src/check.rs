//! `bentpipe check`: explains a configuration, or reports its errors.

mod ground;
mod pair;
mod rows;

use std::error::Error;
use std::fmt::Display;
use std::path::Path;

use bentpipe_cli::log;
use bentpipe_cli::out::{say, show};
use bentpipe_flow::DayUse;
use bentpipe_gateway::air::descriptors::Fitted;
use bentpipe_gateway::config::{
    AirConfig, AirDns, AirLink, ConfigError, GroundConfig, HttpCache, LeaseSource, Listen,
    MAX_MISTAKES, ModemConfig, ModemDiscovery, ModemSource, Preload, Quic, Transport, Which,
    mistakes,
};
use bentpipe_gateway::transports::daily_limit::used;
use bentpipe_gateway::transports::{aerotcp, link};
use bentpipe_link::{IDLE_GRANT, MAX_RATE};
use bentpipe_net::descriptors::descriptor_limit;
use bentpipe_net::filters_strictly;
use bentpipe_net::interception;
use bentpipe_units::{BitRate, ByteSize};

use tracing::subscriber::{NoSubscriber, with_default};

use crate::bridge;
use crate::sheet::Sheet;
use ground::ground;
pub use rows::shares;
use rows::{aerotcp_windows, classes, memory, packets, status};

/// Explains a configuration. Its tables show which gateway it is for.
pub fn run(file: &Path) -> Result<(), Box<dyn Error>> {
    log::warnings();
    show!("{}", describe_or_list(file)?);
    say!("{}: no errors", file.display());
    Ok(())
}

/// Explains both configurations of a pair, and compares them.
pub fn run_pair(one: &Path, other: &Path) -> Result<(), Box<dyn Error>> {
    log::warnings();
    let (air, ground) = match (is_ground(one)?, is_ground(other)?) {
        (false, true) => (one, other),
        (true, false) => (other, one),
        (both, _) => {
            let which = if both { "ground" } else { "air" };
            return Err(
                format!("both files are of {which} gateways: name the two of a pair").into()
            );
        }
    };
    for file in [air, ground] {
        show!("{}", describe_or_list(file)?);
    }
    let found = pair::compare(&AirConfig::load(air, None)?, &GroundConfig::load(ground)?);
    for note in &found.notes {
        say!("note: {note}");
    }
    if !found.faults.is_empty() {
        return Err(format!("the pair cannot work:\n- {}", found.faults.join("\n- ")).into());
    }
    let name = found.name.unwrap_or_default();
    say!(
        "{} and {}: no errors; the ground calls the aircraft {name}",
        air.display(),
        ground.display()
    );
    Ok(())
}

fn is_ground(file: &Path) -> Result<bool, Box<dyn Error>> {
    Ok(Which::of(&read(file)?) == Some(Which::Ground))
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| {
        format!("cannot read {}: {error}\nname a configuration in TOML", file.display())
    })
}

/// Gateway whose configuration a schema describes.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Gateway {
    /// The air gateway: air.toml.
    Air,
    /// The ground gateway: ground.toml.
    Ground,
}

/// Prints the JSON Schema of the gateway's file.
pub fn print_schema(gateway: Gateway) {
    let which = match gateway {
        Gateway::Air => Which::Air,
        Gateway::Ground => Which::Ground,
    };
    say!("{}", which.schema().trim_end());
}

/// Explains the configuration, or lists its mistakes.
fn describe_or_list(file: &Path) -> Result<Sheet, Box<dyn Error>> {
    describe(file).map_err(|error| match error.downcast::<ConfigError>() {
        Ok(first) => list(file, *first),
        Err(other) => other,
    })
}

/// All mistakes that can be found at once, of which reading found `first`.
fn list(file: &Path, first: ConfigError) -> Box<dyn Error> {
    let Ok(text) = read(file) else { return first.into() };
    // The file is read repeatedly, and warnings about it are logged already.
    let all = with_default(NoSubscriber::default(), || mistakes(file, &text));
    if all.len() < 2 {
        return first.into();
    }
    let shown: Vec<String> = all.iter().map(ToString::to_string).collect();
    let count = match all.len() {
        MAX_MISTAKES => format!("{MAX_MISTAKES} or more mistakes"),
        count => format!("{count} mistakes"),
    };
    format!("{}\n\n{count}; others may follow once these are corrected", shown.join("\n\n")).into()
}

fn describe(file: &Path) -> Result<Sheet, Box<dyn Error>> {
    let shown = file.display();
    let complain =
        |error: &dyn Display| format!("{shown}: the link cannot work like this: {error}");
    let complain_of_aerotcp =
        |error: &dyn Display| format!("{shown}: AeroTCP cannot work like this: {error}");
    let text = read(file)?;
    // If the gateway cannot be identified, parse as an air gateway; the error then says what is
    // missing.
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

/// Adds rows about prefetching.
fn ahead(sheet: &mut Sheet, config: &AirConfig, preload: &Preload) -> Result<(), ConfigError> {
    let manifest = preload.check_manifest()?;
    let max = ByteSize::from_bytes(preload.settings.max_bytes_per_run);
    let count = manifest.addresses.len();
    let text = format!("{count} addresses, {max} a run at most, in {}", preload.class);
    sheet.row("preloads", text);
    sheet.row("", format!("when `bentpipe preload` asks at {}", preload.socket.display()));
    let Some(HttpCache { settings, .. }) = &config.http_cache else { return Ok(()) };
    if settings.directory.is_none() {
        let text = "what is preloaded is lost at every restart: [http-cache] has no directory";
        sheet.row("note", text);
    }
    let (memory, disk) = (settings.memory_bytes, settings.disk_bytes);
    let room = settings.directory.as_ref().map_or(memory, |_| disk.max(memory));
    if max.bytes() > room / 2 {
        let room = ByteSize::from_bytes(room);
        let text = format!("no more than half of the cache's {room} can be pinned");
        sheet.row("note", text);
    }
    Ok(())
}

fn air(config: &AirConfig) -> Sheet {
    let link = &config.link;
    let mut sheet = Sheet::new("air gateway");
    sheet.row("own key", link.private_key.public());
    sheet.row("calls", &link.peer);
    sheet.row("its key", link.peer_public_key);
    let over = match link.transport {
        Transport::Link => format!("the radio transport, sending {}", lease(link)),
        Transport::Masque => "HTTP/3, finding its own rate".to_owned(),
        Transport::AeroTcp => format!("AeroTCP, {}", aerotcp_windows(config.aerotcp.as_ref())),
    };
    sheet.row("over", format!("{over}; to the ground's {}", link.transport.listen_key()));
    if link.transport != Transport::Masque {
        packets(&mut sheet, link.mtu);
        sheet.row("state", format!("kept in {}", link.state_file.display()));
    }
    if link.transport == Transport::Link {
        sheet.row("memory", memory(&link.memory));
    }
    paths(&mut sheet, config);
    if let Some(modem) = link.modem.as_ref().filter(|_| config.paths.is_empty()) {
        sheet.row("modem", modem_said(modem));
    }
    listeners(&mut sheet, &config.listen);
    let fitted = Fitted::of(config, descriptor_limit());
    if let Some(shortage) = fitted.shortage {
        sheet.row("note", shortage);
    }
    classes(&mut sheet, &config.classes, link.rate, "sends");
    let rules = &config.rules;
    sheet.row("rules", format!("{}; {} for what none matches", rules.rules.len(), rules.default));
    if let Some(HttpCache { settings, .. }) = &config.http_cache {
        let [memory, disk] = [settings.memory_bytes, settings.disk_bytes].map(ByteSize::from_bytes);
        let place = match &settings.directory {
            Some(directory) => format!("{disk} in {}", directory.display()),
            None => "nothing on disk".to_owned(),
        };
        sheet.row("HTTP cache", format!("{memory} in memory, {place}"));
    }
    for site in &config.sites {
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

/// Adds rows about the radios of the session.
fn paths(sheet: &mut Sheet, config: &AirConfig) {
    // The file has the gateway's permissions, so its use is read only if a radio has a limit.
    let is_limited = config.paths.iter().any(|path| path.daily_limit.is_some());
    let used = is_limited.then(|| used(config));
    if let Some(Err(error)) = &used {
        sheet.row("note", error.to_string());
    }
    let used = used.and_then(Result::ok);
    for path in &config.paths {
        let by = match (&path.interface, &path.local_address) {
            (Some(interface), Some(address)) => format!("by {interface} from {address}"),
            (Some(interface), None) => format!("by {interface}"),
            (None, address) => {
                address.map_or_else(String::new, |address| format!("from {address}"))
            }
        };
        let peer = path.peer.map_or_else(String::new, |peer| format!(" to {peer}"));
        let rate = lease_at(path.lease, path.rate);
        let standby = if path.metered { ", only while no other carries data" } else { "" };
        sheet.row("radio", format!("{}, {by}{peer}, sending {rate}{standby}", path.name));
        if let Some(limit) = path.daily_limit {
            let bytes = |day: &DayUse| ByteSize::from_bytes(day.used_bytes);
            let of_path =
                used.as_ref().map(|all| all.get(&path.name).map_or(ByteSize::from_bytes(0), bytes));
            sheet.row("", daily_limit(limit, of_path));
        }
        if let Some(modem) = &path.modem {
            sheet.row("its modem", modem_said(modem));
        }
        let Some(interface) = &path.interface else { continue };
        if !has_interface(interface) {
            let text =
                format!("this machine has no interface {interface:?} now; it may come later");
            sheet.row("note", text);
        } else if config.paths.len() > 1 && filters_strictly(interface) {
            let text = format!(
                "rp_filter is strict on {interface}: the kernel drops answers there if another \
                 interface has the better route to the ground; 2 is the loose form"
            );
            sheet.row("note", text);
        }
    }
    if config.paths.len() > 1 {
        let text = "each packet goes by the radio on which it arrives first; long downloads go by all, \
                    and what a silent radio carried goes again by the others";
        sheet.row("use", text);
    }
}

/// A radio's daily limit and its use; `None` if the use cannot be read.
fn daily_limit(limit: ByteSize, used: Option<ByteSize>) -> String {
    let Some(used) = used else {
        return format!(
            "at most {limit} a day (UTC), both directions together; its use is unknown"
        );
    };
    let closed = if used >= limit { "; closed until 00:00 UTC" } else { "" };
    format!("at most {limit} a day (UTC), both directions together; {used} reserved today{closed}")
}

/// Adds rows about the on-board resolver.
fn names(sheet: &mut Sheet, dns: &AirDns, tproxy: bool) {
    let mut whom: Vec<_> = dns.listen.iter().map(|address| format!("at {address}")).collect();
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
    let taken = ByteSize::from_bytes(dns.settings.warm_start_bytes.into());
    if taken.bytes() > 0 {
        sheet.row("", format!("{taken} of the ground's at most, where nothing is kept"));
    }
    if let Some(pool) = &dns.instant_names {
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
        let names: Vec<_> = tproxy.interfaces.iter().map(String::as_str).collect();
        let text = format!("TCP and UDP from {} (port {})", names.join(", "), tproxy.port);
        sheet.row("intercepts", text);
        if tproxy.fail_closed {
            sheet.row("", "what is not carried is dropped, also while no gateway runs");
        }
        for name in names.iter().filter(|name| !has_interface(name)) {
            let text = format!("this machine has no interface {name:?} now: `ip link` lists them");
            sheet.row("note", text);
        }
        for bridge in names.iter().filter_map(|name| bridge::note(name)) {
            sheet.row("note", bridge);
        }
        for shortage in interception::shortages(&names) {
            sheet.row("note", shortage);
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

fn has_interface(name: &str) -> bool {
    Path::new("/sys/class/net").join(name).exists()
}

fn modem_said(modem: &ModemConfig) -> String {
    let who = match &modem.source {
        ModemSource::Dlep(ModemDiscovery::At(address)) => {
            format!("tells its rate by DLEP from {address}")
        }
        ModemSource::Dlep(ModemDiscovery::On(interface)) => {
            format!("is looked for on {interface} and tells its rate by DLEP")
        }
        ModemSource::File(file) => format!("has its rate written to {}", file.display()),
    };
    format!("{who}; {} bytes of framing a packet", modem.per_packet_overhead)
}

/// Describes the rate lease and its source.
fn lease(link: &AirLink) -> String {
    lease_at(link.lease, link.rate)
}

fn lease_at(source: LeaseSource, rate: BitRate) -> String {
    match source {
        LeaseSource::Learned if rate == MAX_RATE => "what the path is measured to carry".into(),
        LeaseSource::Learned => format!("what the path is measured to carry, up to {rate}"),
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

#[cfg(test)]
mod tests;
