//! `bentpipe air` and `bentpipe ground`.

use std::error::Error;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use bentpipe_cli::log;
use bentpipe_gateway::config::{AirConfig, ConfigError, GroundConfig, Transport};
use bentpipe_gateway::status::Command;
use bentpipe_gateway::{air, ground};
use bentpipe_net::interception::Rules;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::commands;
use crate::confine::confine;

type Outcome = Result<(), Box<dyn Error>>;

/// Transport of the flows, as named by `--transport`.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum TransportName {
    /// Bentpipe's own radio transport; `peer` must be the ground's `listen`.
    Link,
    /// HTTP/3 on a QUIC library; `peer` must be the ground's `masque-listen`.
    Masque,
    /// AeroTCP; `peer` must be the ground's `aerotcp-listen`.
    #[value(name = "aerotcp")]
    AeroTcp,
}

/// Runs the air gateway until SIGINT or SIGTERM, with the configured transport or another.
pub fn run_air(file: &Path, transport: Option<TransportName>) -> Outcome {
    let chosen = transport.map(|name| match name {
        TransportName::Link => Transport::Link,
        TransportName::Masque => Transport::Masque,
        TransportName::AeroTcp => Transport::AeroTcp,
    });
    log::all();
    let path = file.to_owned();
    let config = AirConfig::load(file, chosen)?;
    let load = move || AirConfig::load(&path, chosen);
    let status = config.status.as_ref().map(|status| status.file.clone());
    run(load, (&config.writable(), status), async move |again, stop| {
        air::run_with(&config, again, stop).await
    })
}

/// Removes the rules that a killed air gateway left, unless `fail-closed` keeps them.
pub fn remove_rules(file: &Path) -> Outcome {
    let config = AirConfig::load(file, None)?;
    match &config.listen.tproxy {
        Some(tproxy) if !tproxy.fail_closed => Rules::remove_leftovers().map_err(Into::into),
        _ => Ok(()),
    }
}

/// Runs the ground gateway until SIGINT or SIGTERM.
pub fn run_ground(file: &Path) -> Outcome {
    log::all();
    let path = file.to_owned();
    let config = GroundConfig::load(file)?;
    let load = move || GroundConfig::load(&path);
    let status = config.status.as_ref().map(|status| status.file.clone());
    run(load, (&config.writable(), status), async move |again, stop| {
        ground::run_with(&config, again, stop).await
    })
}

type Stop = Pin<Box<dyn Future<Output = ()>>>;

/// Runs a gateway until it is stopped. SIGHUP and `bentpipe reload` pass it a new configuration from
/// `load`. The gateway may write only to the folders `writable`. `status` is its status file.
fn run<C: Send + 'static, E: Error + 'static>(
    load: impl Fn() -> Result<C, ConfigError> + Send + 'static,
    (writable, status): (&[PathBuf], Option<PathBuf>),
    gateway: impl AsyncFnOnce(mpsc::Receiver<Command<C>>, Stop) -> Result<(), E>,
) -> Outcome {
    confine(writable);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let (mut int, mut term) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let again = commands::receive(load, status.as_deref())?;
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
