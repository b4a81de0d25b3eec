//! The `bentpipe` command: gateways, keys, classes and the lab.

#![forbid(unsafe_code)]

mod check;
mod classify;
mod confine;
#[cfg(feature = "lab")]
mod demo;
mod gateways;
mod keys;
#[cfg(feature = "lab")]
mod lab;
mod out;
mod preload;
#[cfg(feature = "lab")]
mod report;
mod sheet;
mod status;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The open gateway pair for Internet access over geostationary satellites and air-to-ground radio.
#[derive(Parser)]
#[command(version, propagate_version = true, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the air gateway: accepts clients' connections and carries them over the radio link.
    ///
    /// Runs until SIGINT or SIGTERM and logs to stderr; RUST_LOG=debug logs more. `bentpipe check`
    /// explains its configuration, docs/settings.md lists all settings.
    Air {
        /// The configuration, usually air.toml.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The transport to use instead of the configured one. The ground serves each transport at
        /// its own address, so `peer` in the configuration must match.
        #[arg(long, value_name = "NAME")]
        transport: Option<gateways::TransportName>,
        /// Instead of running, remove the interception rules that a killed gateway left; those of
        /// `fail-closed = true` stay.
        #[arg(long, conflicts_with = "transport")]
        remove_rules: bool,
    },
    /// Run the ground gateway: serves known aircraft and dials destinations for them.
    ///
    /// Runs until SIGINT or SIGTERM and logs to stderr; RUST_LOG=debug logs more. `bentpipe check`
    /// explains its configuration, docs/settings.md lists all settings.
    Ground {
        /// The configuration, usually ground.toml.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Make a key pair: the private key goes to a file, the public key is printed.
    ///
    /// Each gateway needs its own pair. The private key stays on the machine where it is made; the
    /// public key goes into the configuration of the other gateway.
    Keys {
        /// Make a token for a standard MASQUE client of this name instead: the token goes to the
        /// file, the entry for the ground's configuration is printed.
        #[arg(long, value_name = "NAME")]
        client: Option<String>,
        /// File for the private key or the token; it must not exist yet.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Explain a gateway's configuration, or report its errors.
    Check {
        /// The configuration of either gateway.
        #[arg(value_name = "FILE")]
        config: PathBuf,
    },
    /// Print the JSON Schema of a gateway's configuration, for editors.
    ///
    /// An editor completes and checks a configuration whose first line names the file with the
    /// schema: `#:schema air.schema.json`. docs/settings.md says more.
    Schema {
        /// The gateway whose configuration the schema describes.
        gateway: check::Gateway,
    },
    /// Show the class of a flow: which rule applies, and why the others do not.
    Classify(classify::Classify),
    /// Show a gateway's current traffic: classes, passengers and flows.
    ///
    /// The gateway writes it to the file configured under [status]; docs/status.md describes the
    /// file's fields. Rates are averages between the last two files.
    Status(status::Status),
    /// Fetch the portal's content into a running air gateway's cache, and show the result.
    ///
    /// The gateway goes through the manifest of its [preload] once. A timer of the service manager
    /// runs this command at night; docs/cabin-services.md says more. Ending the command stops the
    /// run.
    Preload(preload::Preload),
    /// Measure the Internet access of a flight: latency, loss, paths, DNS caches, captive portals.
    ///
    /// Works on any access, without Bentpipe, root or configuration. Shows a live table and stores every
    /// record; nothing is uploaded. docs/probe.md describes the records.
    #[cfg(feature = "probe")]
    Probe(bentpipe_probe_host::Args),
    /// See Bentpipe work: an emulated in-flight link, with and without the gateways, then a proxy
    /// to browse through.
    #[cfg(feature = "lab")]
    Demo(demo::Demo),
    /// Compare the results in a folder with the published studies.
    ///
    /// A summary goes to standard output; --out writes a self-contained HTML page. `bentpipe lab
    /// papers` makes such folders.
    #[cfg(feature = "lab")]
    Report(report::ReportArgs),
    /// Experiments on emulated and simulated links.
    #[cfg(feature = "lab")]
    #[command(subcommand)]
    Lab(lab::Lab),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Air { config, remove_rules: true, .. } => gateways::remove_rules(&config),
        Command::Air { config, transport, .. } => gateways::run_air(&config, transport),
        Command::Ground { config } => gateways::run_ground(&config),
        Command::Keys { client: None, out } => keys::make(&out),
        Command::Keys { client: Some(name), out } => keys::make_token(&name, &out),
        Command::Check { config } => check::run(&config),
        Command::Schema { gateway } => check::print_schema(gateway),
        Command::Classify(classify) => classify::run(&classify),
        Command::Status(status) => status::run(&status),
        Command::Preload(preload) => preload::run(&preload),
        #[cfg(feature = "probe")]
        Command::Probe(args) => bentpipe_probe_host::run(&args).map_err(Into::into),
        #[cfg(feature = "lab")]
        Command::Demo(demo) => demo::run(&demo),
        #[cfg(feature = "lab")]
        Command::Report(args) => report::run(&args),
        #[cfg(feature = "lab")]
        Command::Lab(lab) => lab::run(&lab),
    };
    match result.and_then(|()| Ok(out::result()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bentpipe: {error}");
            ExitCode::FAILURE
        }
    }
}
