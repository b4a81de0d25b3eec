//! The probe as a program of its own, for machines without gateways.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// Measure the Internet access of a flight: latency, loss, paths, DNS caches, captive portals.
#[derive(Parser)]
#[command(version, max_term_width = 80)]
struct Cli {
    #[command(flatten)]
    probe: bentpipe_probe_host::Args,
}

fn main() -> ExitCode {
    match bentpipe_probe_host::run(&Cli::parse().probe) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bentpipe-probe: {error}");
            ExitCode::FAILURE
        }
    }
}
