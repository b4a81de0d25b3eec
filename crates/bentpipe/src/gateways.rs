//! `bentpipe air` and `bentpipe ground`.

use std::error::Error;
use std::future::Future;
use std::io::IsTerminal;
use std::path::Path;
use std::pin::Pin;

use bentpipe_gateway::config::{AirConfig, GroundConfig, Transport};
use bentpipe_gateway::net::StartError;
use bentpipe_gateway::{air, ground};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

type Outcome = Result<(), Box<dyn Error>>;

/// What carries the flows, as `--transport` names it.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum TransportName {
    /// Bentpipe's own radio transport; peer must be the ground's listen.
    Link,
    /// HTTP/3 on a QUIC library; peer must be the ground's masque-listen.
    Masque,
    /// AeroTCP; peer must be the ground's aerotcp-listen.
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
    let config = AirConfig::load(file, chosen)?;
    run(async move |stop| air::run(&config, stop).await)
}

/// Runs the ground gateway until SIGINT or SIGTERM.
pub fn run_ground(file: &Path) -> Outcome {
    let config = GroundConfig::load(file)?;
    run(async move |stop| ground::run(&config, stop).await)
}

type Stop = Pin<Box<dyn Future<Output = ()>>>;

fn run(gateway: impl AsyncFnOnce(Stop) -> Result<(), StartError>) -> Outcome {
    log_to_stderr();
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
        gateway(stop).await.map_err(Into::into)
    })
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
