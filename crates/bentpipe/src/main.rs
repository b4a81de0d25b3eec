//! The `bentpipe` command: gateways, keys, classes and the lab.

mod classify;
mod demo;
mod gateways;
mod keys;
mod lab;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The open gateway pair for Internet access over geostationary satellites and air-to-ground radio.
#[derive(Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the air gateway: takes clients' connections and carries them over the radio link.
    Air {
        /// The configuration, TOML.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The transport to use in place of the configured one.
        #[arg(long, value_name = "NAME")]
        transport: Option<gateways::TransportName>,
    },
    /// Run the ground gateway: serves known aircraft and dials for them.
    Ground {
        /// The configuration, TOML.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Make a key pair: the private key goes to a file, the public key is printed.
    Keys {
        /// Make a token for a standard MASQUE client of this name instead: the token goes to the
        /// file, the entry for the ground's configuration is printed.
        #[arg(long, value_name = "NAME")]
        client: Option<String>,
        /// Where the private key or the token goes; it must not exist yet.
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Read a gateway's configuration and say what it means, or what is wrong with it.
    Check {
        /// The configuration, TOML.
        #[arg(value_name = "FILE")]
        config: PathBuf,
    },
    /// Say which class a flow would have: which rule wins, and why the others do not.
    Classify(classify::Classify),
    /// See it work: an emulated in-flight link, with and without the gateways, then a proxy to
    /// browse through.
    Demo(demo::Demo),
    /// Experiments on emulated and simulated links.
    #[command(subcommand)]
    Lab(lab::Lab),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Air { config, transport } => gateways::run_air(&config, transport),
        Command::Ground { config } => gateways::run_ground(&config),
        Command::Keys { client: None, out } => keys::make(&out),
        Command::Keys { client: Some(name), out } => keys::make_token(&name, &out),
        Command::Check { config } => gateways::check(&config),
        Command::Classify(classify) => classify::run(&classify),
        Command::Demo(demo) => demo::run(&demo),
        Command::Lab(lab) => lab::run(&lab),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bentpipe: {error}");
            ExitCode::FAILURE
        }
    }
}
