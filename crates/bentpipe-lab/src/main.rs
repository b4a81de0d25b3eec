//! The `bentpipe-lab` command: experiments on emulated and simulated links, the demo and the report.
//!
//! Emulated experiments run the gateways as processes of the program `bentpipe`, which is installed
//! beside this one.

#![forbid(unsafe_code)]

mod demo;
mod lab;
mod report;

use std::process::ExitCode;

use bentpipe_cli::{VERSION, log, out};
use clap::{Parser, Subcommand};

/// The lab of Bentpipe: experiments on emulated and simulated links.
#[derive(Parser)]
#[command(version = VERSION, propagate_version = true, max_term_width = 80)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// See Bentpipe work: an emulated in-flight link, with and without the gateways, then a proxy
    /// to browse through.
    Demo(demo::Demo),
    #[command(flatten)]
    Lab(lab::Lab),
    /// Compare the results in a folder with the published studies.
    ///
    /// A summary goes to standard output; --out writes a self-contained HTML page. `bentpipe-lab
    /// papers` makes such folders.
    Report(report::ReportArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Demo(demo) => demo::run(&demo),
        Command::Lab(lab) => lab::run(&lab),
        Command::Report(args) => report::run(&args),
    };
    match result.and_then(|()| Ok(out::result()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bentpipe-lab: {}", log::causes(&*error));
            ExitCode::FAILURE
        }
    }
}
