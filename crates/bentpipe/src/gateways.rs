//! `bentpipe air`, `bentpipe ground` and `bentpipe check`.

use std::error::Error;
use std::future::Future;
use std::io::IsTerminal;
use std::path::Path;
use std::pin::Pin;

use bentpipe_gateway::config::{
    AeroTcp, AirConfig, AirLink, AircraftConfig, Beam, ClassConfig, Classes, ConfigError,
    GroundConfig, LeaseSource, ModemConfig, ModemSource, Transport, WindowKind,
};
use bentpipe_gateway::far::{aerotcp, link};
use bentpipe_gateway::net::StartError;
use bentpipe_gateway::rate::dlep::Finding;
use bentpipe_gateway::{air, ground};
use bentpipe_link::IDLE_GRANT;
use bentpipe_units::BitRate;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tracing_subscriber::EnvFilter;

type Outcome = Result<(), Box<dyn Error>>;

/// What carries the flows, as `--transport` names it.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum TransportName {
    /// Bentpipe's own radio transport.
    Link,
    /// HTTP/3 CONNECT on a QUIC library.
    Masque,
    /// AeroTCP, as its paper has it.
    #[value(name = "aerotcp")]
    AeroTcp,
}

/// Runs the air gateway until SIGINT or SIGTERM, over the configured transport or another.
pub fn run_air(file: &Path, transport: Option<TransportName>) -> Outcome {
    let chosen = transport.map(|name| match name {
        TransportName::Link => Transport::Link,
        TransportName::Masque => Transport::Masque,
        TransportName::AeroTcp => Transport::AeroTcp,
    });
    let path = file.to_owned();
    let config = AirConfig::load(file, chosen)?;
    let load = move || AirConfig::load(&path, chosen);
    run(load, async move |again, stop| air::run_with(&config, again, stop).await)
}

/// Runs the ground gateway until SIGINT or SIGTERM.
pub fn run_ground(file: &Path) -> Outcome {
    let path = file.to_owned();
    let config = GroundConfig::load(file)?;
    let load = move || GroundConfig::load(&path);
    run(load, async move |again, stop| ground::run_with(&config, again, stop).await)
}

type Stop = Pin<Box<dyn Future<Output = ()>>>;

/// Runs a gateway until it is told to stop; with SIGHUP it gets what `load` reads then.
fn run<C: Send + 'static>(
    load: impl Fn() -> Result<C, ConfigError> + Send + 'static,
    gateway: impl AsyncFnOnce(mpsc::Receiver<C>, Stop) -> Result<(), StartError>,
) -> Outcome {
    log_to_stderr();
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let (mut int, mut term) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let again = reloads(load)?;
        let stop = Box::pin(async move {
            tokio::select! {
                _ = int.recv() => {}
                _ = term.recv() => {}
            }
            tracing::info!("stopping: open flows may finish; a second signal ends at once");
            tokio::spawn(async move {
                tokio::select! {
                    _ = int.recv() => {}
                    _ = term.recv() => {}
                }
                std::process::exit(130);
            });
        });
        gateway(again, stop).await.map_err(Into::into)
    })
}

/// What `load` reads with every SIGHUP. A file that is wrong is told, and changes nothing.
fn reloads<C: Send + 'static>(
    load: impl Fn() -> Result<C, ConfigError> + Send + 'static,
) -> std::io::Result<mpsc::Receiver<C>> {
    let mut hangup = signal(SignalKind::hangup())?;
    let (send, again) = mpsc::channel(1);
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match load() {
                Ok(config) => {
                    if send.send(config).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::error!(
                        "the configuration stays as it was, for this is wrong: {error}"
                    );
                }
            }
        }
    });
    Ok(again)
}

/// Writes the log to stderr, filtered by `RUST_LOG`.
pub fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// Says what a configuration means. Which gateway it is for shows in its tables.
pub fn check(file: &Path) -> Outcome {
    let complain = |error| format!("{}: the link cannot work like this: {error}", file.display());
    let complain_of_aerotcp =
        |error| format!("{}: AeroTCP cannot work like this: {error}", file.display());
    if is_air(file)? {
        let config = AirConfig::load(file, None)?;
        let anywhere = ([127, 0, 0, 1], 0).into();
        if config.link.transport == Transport::Link {
            link::air_config(&config, anywhere, 0).map_err(complain)?;
        }
        if config.link.transport == Transport::AeroTcp || config.aerotcp.is_some() {
            aerotcp::air_config(&config, anywhere, 0).map_err(complain_of_aerotcp)?;
        }
        describe_air(&config);
    } else {
        let config = GroundConfig::load(file)?;
        if config.link.listen.is_some() {
            link::hub_config(&config).map_err(complain)?;
        }
        if config.link.aerotcp_listen.is_some() {
            aerotcp::ground_config(&config).map_err(complain_of_aerotcp)?;
        }
        describe_ground(&config);
    }
    println!("{}: no errors", file.display());
    Ok(())
}

/// An air gateway has a peer or listeners; a ground gateway has neither.
fn is_air(file: &Path) -> Result<bool, Box<dyn Error>> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let Ok(table) = text.parse::<toml::Table>() else {
        return Ok(true); // whichever it is, loading it says where the text is broken
    };
    let link = table.get("link").and_then(|link| link.as_table());
    Ok(table.contains_key("listen") || link.is_some_and(|link| link.contains_key("peer")))
}

fn describe_air(config: &AirConfig) {
    let (link, listen) = (&config.link, &config.listen);
    let transport = match link.transport {
        Transport::Link => format!("the radio transport, sending {}", lease(link)),
        Transport::Masque => "HTTP/3 CONNECT, finding its own rate".to_owned(),
        Transport::AeroTcp => format!("AeroTCP, {}", describe_aerotcp(config.aerotcp.as_ref())),
    };
    println!("air gateway");
    println!("  calls         {} (key {}) over {transport}", link.peer, link.peer_public_key);
    if let Some(modem) = &link.modem {
        println!("  modem         {}", describe_modem(modem));
    }
    if let Some(address) = listen.socks5 {
        println!("  SOCKS5        {address}");
    }
    if let Some(address) = listen.http_proxy {
        println!("  HTTP proxy    {address}");
    }
    if let Some(tproxy) = &listen.tproxy {
        let names: Vec<_> = tproxy.interfaces.iter().map(|name| name.get_ref().as_str()).collect();
        println!("  intercepts    TCP and UDP from {} (port {})", names.join(", "), tproxy.port);
    }
    describe_classes(&config.classes, link.rate, "sends");
    let rules = &config.rules;
    println!("  rules         {}; {} for what none matches", rules.rules.len(), rules.default);
    if let Some(usage) = &config.usage {
        let directory = usage.directory.display();
        println!("  usage         written to {directory} every {}", usage.interval);
    }
    let limits = &config.limits;
    println!(
        "  flows         {}, {} a passenger",
        limits.max_flows, limits.max_flows_per_passenger
    );
}

fn describe_modem(modem: &ModemConfig) -> String {
    let who = match &modem.source {
        ModemSource::Dlep(Finding::At(address)) => format!("tells its rate by DLEP from {address}"),
        ModemSource::Dlep(Finding::On(interface)) => {
            format!("is looked for on {interface} and tells its rate by DLEP")
        }
        ModemSource::File(file) => format!("has its rate written to {}", file.display()),
    };
    format!("{who}; {} bytes of framing a packet", modem.framing_bytes)
}

fn describe_aerotcp(table: Option<&AeroTcp>) -> String {
    let Some(table) = table else { return "not told of the satellite".to_owned() };
    let window = match (table.window, table.connections) {
        (WindowKind::Static, Some(n)) => format!("static windows for {n} connections"),
        (WindowKind::Static, None) => "static windows".to_owned(),
        (WindowKind::Adaptive, _) => "windows by the connections that are open".to_owned(),
        (WindowKind::Table, _) => format!("windows from a table of {}", table.table.len()),
    };
    format!("{window}, round trip {}", table.rtt)
}

/// What is sent, and who says so.
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

fn describe_beam(beam: &Beam, aircraft: &[AircraftConfig]) {
    let weights: u32 = aircraft.iter().map(|one| one.share().weight).sum();
    for (name, rate) in [("to all", beam.forward), ("from all", beam.return_)] {
        if let Some(rate) = rate {
            println!("  beam          {rate} {name}, divided by demand and weight");
        }
    }
    for one in aircraft {
        let share = one.share();
        println!(
            "                {}: {} of {weights}, over {}",
            one.name, share.weight, share.floor
        );
    }
}

/// What each class may count on and take, and what is remarkable about that.
fn describe_classes(classes: &Classes, rate: BitRate, does: &str) {
    for (class, config) in classes.iter() {
        println!("  class         {class} {does} {}", shares(config));
    }
    for remark in classes.remarks(rate) {
        println!("  note          {remark}");
    }
}

/// In words, what a class may count on and take.
pub fn shares(config: &ClassConfig) -> String {
    match (config.rate(), config.ceil()) {
        (Some(rate), Some(ceil)) => format!("{rate} whenever it asks, {ceil} at most"),
        (Some(rate), None) => format!("{rate} whenever it asks, all of an idle link"),
        (None, Some(ceil)) => format!("its share, {ceil} at most"),
        (None, None) => "its share, all of an idle link".to_owned(),
    }
}

fn describe_ground(config: &GroundConfig) {
    println!("ground gateway");
    if let Some(address) = config.link.listen {
        println!("  radio link    {address}/udp");
    }
    if let Some(address) = config.link.masque_listen {
        println!("  HTTP/3        {address}/udp");
    }
    if let Some(address) = config.link.aerotcp_listen {
        println!("  AeroTCP       {address}/udp, {}", describe_aerotcp(config.aerotcp.as_ref()));
    }
    for aircraft in &config.aircraft {
        let (name, key, rate) = (&aircraft.name, aircraft.key(), aircraft.rate);
        println!("  aircraft      {name} (key {key}): {rate}, {} flows", aircraft.max_flows);
        describe_classes(&aircraft.classes, rate, "is sent");
    }
    for client in &config.clients {
        let (name, class) = (client.name(), client.highest_class.name());
        println!("  client        {name} (token): {} flows, up to {class}", client.max_flows);
    }
    if let Some(beam) = config.beam() {
        describe_beam(beam, &config.aircraft);
    }
    if config.aircraft.is_empty() && config.clients.is_empty() {
        println!("  aircraft      none: nobody will be served");
    }
    if config.dial.allow.is_empty() {
        println!("  dials         public addresses only");
    } else {
        let allowed: Vec<_> = config.dial.allow.iter().map(ToString::to_string).collect();
        println!("  dials         public addresses, and {}", allowed.join(", "));
    }
}
