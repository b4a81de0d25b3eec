//! `bentpipe explain`: says by which egress a hub reaches a destination.

use std::error::Error;

use bentpipe_cli::out::say;
use bentpipe_flow::Target;

use crate::commands::Gateway;

/// Port of a destination that is named without one. The choice does not depend on it.
const USUAL_PORT: u16 = 443;

/// Destination to explain.
#[derive(clap::Args)]
pub struct Explain {
    /// A name or an address, as in `www.example.com`.
    #[arg(value_name = "NAME", value_parser = destination)]
    target: Target,
    #[command(flatten)]
    gateway: Gateway,
}

pub fn run(explain: &Explain) -> Result<(), Box<dyn Error>> {
    for line in explain.gateway.explain(&explain.target)? {
        say!("{line}");
    }
    Ok(())
}

fn destination(text: &str) -> Result<Target, String> {
    let with_port = match text.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]:{USUAL_PORT}"),
        Err(_) => format!("{text}:{USUAL_PORT}"),
    };
    text.parse().or_else(|_| with_port.parse()).map_err(|_| {
        "it is neither a host name nor an address; write www.example.com or 192.0.2.1".to_owned()
    })
}
