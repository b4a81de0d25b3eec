//! `bentpipe geofeed`: the places of a ground's source addresses, for those who look up addresses.

use std::error::Error;
use std::path::PathBuf;

use bentpipe_cli::out::say;
use bentpipe_gateway::config::{GroundConfig, SourceAddress};
use clap::Args;

/// Arguments of `geofeed`.
#[derive(Args)]
pub struct Geofeed {
    /// Configurations of grounds.
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

/// Prints a line for each address with a place (RFC 8805).
pub fn run(args: &Geofeed) -> Result<(), Box<dyn Error>> {
    let mut lines = Vec::new();
    for file in &args.files {
        let config = GroundConfig::load(file)?;
        lines.extend(config.dial.sources.iter().filter_map(SourceAddress::geofeed_line));
    }
    if lines.is_empty() {
        return Err("no address of sources under [dial] has a place: write \
                    sources = [{ address = \"198.51.100.7\", country = \"FR\" }]"
            .into());
    }
    lines.sort();
    lines.dedup();
    say!("# prefix,country,region,city,");
    lines.iter().for_each(|line| say!("{line}"));
    Ok(())
}
