//! `bentpipe lab bench`.

use std::fmt::Display;
use std::path::PathBuf;

use bentpipe_cli::out::show;
use bentpipe_cli::sibling::{self, GATEWAYS};
use bentpipe_lab::result::Row;
use bentpipe_lab::scratch::Scratch;
use bentpipe_lab::{bench, emu};
use clap::Subcommand;

use super::common::{Outcome, check_writable, write};

/// Benchmarks of this machine.
#[derive(Subcommand)]
pub enum Bench {
    /// Compare TCP through both gateways with a bare QUIC transfer, over an unlimited link.
    Relay {
        /// Write the figures to this file, as an array of rows.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Compare the link layer's processor time for each packet with that of its AEAD alone, and over
    /// two paths with that over one.
    Link {
        /// Fail if a bound is missed.
        #[arg(long)]
        check: bool,
        /// Write the figures to this file, as an array of rows.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Measure a ground gateway's processor time for each packet, with many sessions of which few
    /// are active, and under junk from strangers; also the memory of an idle session.
    Hub {
        /// Numbers of sessions; 10 is always included.
        #[arg(
            long,
            value_name = "LIST",
            value_delimiter = ',',
            default_values_t = [10, 100, 1000, 5000],
            value_parser = clap::value_parser!(u16).range(1..=20_000)
        )]
        sessions: Vec<u16>,
        /// Number of sessions that receive data.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        active: u16,
        /// Fail if a bound is missed.
        #[arg(long)]
        check: bool,
        /// Write the figures to this file, as an array of rows.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Measure both gateways' processor time for a SOCKS5 download on loopback: the rate that one
    /// core of each sustains.
    Cpu {
        /// Another build of bentpipe to measure alternately with this one; may be repeated.
        #[arg(long = "beside", value_name = "PROGRAM")]
        beside: Vec<PathBuf>,
        /// Hysteria 2 program to measure alternately with this one.
        #[arg(long, value_name = "PROGRAM")]
        hysteria: Option<PathBuf>,
        /// Length of a download, in MB.
        #[arg(long, value_name = "MB", default_value_t = 1500, value_parser = clap::value_parser!(u64).range(1..))]
        megabytes: u64,
        /// Number of downloads of each system.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..))]
        rounds: u8,
        /// Fail if a target is missed.
        #[arg(long)]
        check: bool,
        /// Write the figures to this file, as an array of rows.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Measure processor time and context switches per packet of one hub with several busy aircraft on
    /// loopback, with one shard and with several.
    Shards {
        /// Number of aircraft.
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..))]
        aircraft: u8,
        /// Shards of the second hub.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(2..))]
        shards: u8,
        /// Length of a download to each aircraft, in MB.
        #[arg(long, value_name = "MB", default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
        megabytes: u64,
        /// Number of rounds for each hub.
        #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..))]
        rounds: u8,
        /// Write the figures to this file, as an array of rows.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Measure the memory of both gateways with 10,000 idle flows.
    Idle {
        /// Write the figures to this file, as an array of rows.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
        /// Number of flows.
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u16).range(1..))]
        flows: u16,
    },
}

/// Runs the benchmark.
pub fn run(bench: &Bench) -> Outcome {
    let json = match bench {
        Bench::Relay { json }
        | Bench::Link { json, .. }
        | Bench::Hub { json, .. }
        | Bench::Cpu { json, .. }
        | Bench::Shards { json, .. }
        | Bench::Idle { json, .. } => json.as_deref(),
    };
    check_writable(json)?;
    let tell = |found: &dyn Display, rows: &[Row]| {
        show!("{found}");
        write(json, rows)
    };
    match bench {
        Bench::Relay { .. } => {
            emu::enter()?;
            let found = bench::relay::run(&sibling::find(GATEWAYS)?, Scratch::new()?.path())?;
            tell(&found, &found.rows())
        }
        Bench::Link { check, .. } => {
            let found = bench::link::run()?;
            tell(&found, &found.rows())?;
            met(*check, &found.missed())
        }
        Bench::Hub { sessions, active, check, .. } => {
            let sessions: Vec<usize> = sessions.iter().map(|count| (*count).into()).collect();
            let found = bench::hub::run(&sessions, (*active).into())?;
            tell(&found, &found.rows())?;
            met(*check, &found.missed())
        }
        Bench::Cpu { beside, hysteria, megabytes, rounds, check, .. } => {
            let this = sibling::find(GATEWAYS)?;
            let plan = bench::download::Plan {
                programs: [this].into_iter().chain(beside.iter().cloned()).collect(),
                hysteria: hysteria.clone(),
                bytes: megabytes * 1_000_000,
                rounds: (*rounds).into(),
            };
            let found = bench::download::run(&plan, Scratch::new()?.path())?;
            tell(&found, &found.rows())?;
            met(*check, &found.missed())
        }
        Bench::Shards { aircraft, shards, megabytes, rounds, .. } => {
            let plan = bench::shards::Plan {
                aircraft: (*aircraft).into(),
                shards: (*shards).into(),
                bytes: megabytes * 1_000_000,
                rounds: (*rounds).into(),
            };
            let found = bench::shards::run(&plan)?;
            tell(&found, &found.rows())
        }
        Bench::Idle { flows, .. } => {
            emu::enter()?;
            let (gateways, holder) = (sibling::find(GATEWAYS)?, std::env::current_exe()?);
            let folder = Scratch::new()?;
            let found = bench::idle::run((*flows).into(), &gateways, &holder, folder.path())?;
            tell(&found, &found.rows())
        }
    }
}

/// Returns an error if `check` is set and targets were missed.
fn met(check: bool, missed: &[String]) -> Outcome {
    if check && !missed.is_empty() { Err(missed.join("\n").into()) } else { Ok(()) }
}
