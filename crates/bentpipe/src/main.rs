//! The `bentpipe` command: gateways, keys, classes and the lab.

mod check;
mod classify;
mod confine;
mod demo;
mod gateways;
mod keys;
mod lab;
mod out;
mod preload;
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
    /// Run the gateway on board: takes clients' connections and carries them over the radio link.
    ///
    /// Runs until SIGINT or SIGTERM and logs to stderr; RUST_LOG=debug tells more. `bentpipe check`
    /// explains its configuration, docs/settings.md lists all settings.
    Air {
        /// The configuration, usually air.toml.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The transport to use in place of the configured one; each is served at an address of its
        /// own, and `peer` in the configuration has to be that.
        #[arg(long, value_name = "NAME")]
        transport: Option<gateways::TransportName>,
        /// Instead of running, remove the interception rules that a killed gateway left; those of
        /// `fail-closed = true` stay.
        #[arg(long, conflicts_with = "transport")]
        remove_rules: bool,
    },
    /// Run the gateway on the ground: serves known aircraft and dials for them.
    ///
    /// Runs until SIGINT or SIGTERM and logs to stderr; RUST_LOG=debug tells more. `bentpipe check`
    /// explains its configuration, docs/settings.md lists all settings.
    Ground {
        /// The configuration, usually ground.toml.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Make a key pair: the private key goes to a file, the public key is printed.
    ///
    /// Each gateway has a pair of its own. The private key stays where it is made; the public key
    /// goes into the configuration of the other gateway.
    Keys {
        /// Make a token for a standard MASQUE client of this name instead: the token goes to the
        /// file, the entry for the ground's configuration is printed.
        #[arg(long, value_name = "NAME")]
        client: Option<String>,
        /// File for the private key or the token; it must not exist yet.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Read a gateway's configuration and say what it means, or what is wrong with it.
    Check {
        /// The configuration of either gateway.
        #[arg(value_name = "FILE")]
        config: PathBuf,
    },
    /// Say which class a flow would have: which rule wins, and why the others do not.
    Classify(classify::Classify),
    /// Show what a gateway carries now: classes, passengers and flows.
    ///
    /// The gateway writes that to a file where [status] of its configuration says so; docs/status.md
    /// has the file's fields. Rates are those between the last two files.
    Status(status::Status),
    /// Show what became of the portal's content when it was last preloaded, or ask for it now.
    ///
    /// An air gateway preloads what [preload] of its configuration says, and reports there;
    /// docs/cabin-services.md tells more.
    Preload(preload::Preload),
    /// See it work: an emulated in-flight link, with and without the gateways, then a proxy to
    /// browse through.
    Demo(demo::Demo),
    /// Show what the published studies say beside what a folder of results has.
    ///
    /// A summary goes to standard output; with --out a page of HTML that needs nothing else goes to
    /// a file. `bentpipe lab papers` makes such folders.
    Report(report::ReportArgs),
    /// Experiments on emulated and simulated links.
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
        Command::Classify(classify) => classify::run(&classify),
        Command::Status(status) => status::run(&status),
        Command::Preload(preload) => preload::run(&preload),
        Command::Demo(demo) => demo::run(&demo),
        Command::Report(args) => report::run(&args),
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
