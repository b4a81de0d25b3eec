//! `bentpipe air`, `bentpipe ground` and `bentpipe check`.

use std::error::Error;
use std::future::Future;
use std::path::Path;

use bentpipe_gateway::config::{AirConfig, GroundConfig, Transport};
use bentpipe_gateway::net::Inherited;
use bentpipe_gateway::start;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

type Outcome = Result<(), Box<dyn Error>>;

/// Runs the air gateway until SIGINT or SIGTERM.
pub fn air(file: &Path) -> Outcome {
    let config = AirConfig::load(file)?;
    run(|mut inherited, stop| async move { start::air(&config, &mut inherited, stop).await })
}

/// Runs the ground gateway until SIGINT or SIGTERM.
pub fn ground(file: &Path) -> Outcome {
    let config = GroundConfig::load(file)?;
    run(|mut inherited, stop| async move { start::ground(&config, &mut inherited, stop).await })
}

fn run<F>(
    gateway: impl FnOnce(Inherited, std::pin::Pin<Box<dyn Future<Output = ()>>>) -> F,
) -> Outcome
where
    F: Future<Output = Result<(), start::RunError>>,
{
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let inherited = Inherited::from_env()?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let (mut int, mut term) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
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
        gateway(inherited, stop).await.map_err(Into::into)
    })
}

/// Says what a configuration means. Which gateway it is for shows in its tables.
pub fn check(file: &Path) -> Outcome {
    if is_air(file)? {
        describe_air(&AirConfig::load(file)?);
    } else {
        describe_ground(&GroundConfig::load(file)?);
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
        Transport::Link => format!("the radio transport, sending {}", link.rate),
        Transport::Masque => "HTTP/3 CONNECT, finding its own rate".to_owned(),
    };
    println!("air gateway");
    println!("  calls         {} (key {}) over {transport}", link.peer, link.peer_public_key);
    if let Some(address) = listen.socks5 {
        println!("  SOCKS5        {address}");
    }
    if let Some(address) = listen.http_proxy {
        println!("  HTTP proxy    {address}");
    }
    if let Some(tproxy) = &listen.tproxy {
        let names: Vec<_> = tproxy.interfaces.iter().map(|name| name.get_ref().as_str()).collect();
        println!("  intercepts    TCP from {} (port {})", names.join(", "), tproxy.port);
    }
    let limits = &config.limits;
    println!(
        "  flows         {}, {} a passenger",
        limits.max_flows, limits.max_flows_per_passenger
    );
}

fn describe_ground(config: &GroundConfig) {
    println!("ground gateway");
    if let Some(address) = config.link.listen {
        println!("  radio link    {address}/udp");
    }
    if let Some(address) = config.link.masque_listen {
        println!("  HTTP/3        {address}/udp");
    }
    for aircraft in &config.aircraft {
        let (name, key, rate) = (&aircraft.name, aircraft.key(), aircraft.rate);
        println!("  aircraft      {name} (key {key}): {rate}, {} flows", aircraft.max_flows);
    }
    if config.aircraft.is_empty() {
        println!("  aircraft      none: nobody will be served");
    }
    if config.dial.allow.is_empty() {
        println!("  dials         public addresses only");
    } else {
        let allowed: Vec<_> = config.dial.allow.iter().map(ToString::to_string).collect();
        println!("  dials         public addresses, and {}", allowed.join(", "));
    }
}
