//! `bentpipe demo`.
use std::error::Error;
/// What it is told.
#[derive(clap::Args)]
pub struct Demo {}
/// Does it.
pub fn run(_demo: &Demo) -> Result<(), Box<dyn Error>> {
    Ok(())
}
