//! `bentpipe init`: sets up a pair of gateways by one line that is carried from the ground to the
//! aircraft.

mod air;
mod files;
mod ground;
mod join;
mod service;

use std::error::Error;

use clap::Subcommand;

/// Gateway to set up.
#[derive(Subcommand)]
pub enum Init {
    /// Add an aircraft to this ground gateway, and print the line that joins it.
    ///
    /// Writes ground.toml and ground.key if they are missing, adds the aircraft, and starts the
    /// service if it does not run yet. The join line goes to standard output, everything else to
    /// standard error. The line holds the private key of the aircraft: give it to nobody else.
    Ground(ground::GroundArgs),
    /// Set up this air gateway with the ground's join line.
    ///
    /// Writes air.toml and air.key, calls the ground once, reports the round trip that it measured,
    /// and starts the service.
    Air(air::AirArgs),
}

/// Sets up the gateway.
pub fn run(init: &Init) -> Result<(), Box<dyn Error>> {
    match init {
        Init::Ground(args) => ground::run(args),
        Init::Air(args) => air::run(args),
    }
}
