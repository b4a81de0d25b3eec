//! `bentpipe reload`: lets a running gateway read its configuration again.

use std::error::Error;

use crate::commands::Gateway;

pub fn run(gateway: &Gateway) -> Result<(), Box<dyn Error>> {
    for line in gateway.reload()? {
        eprintln!("{line}");
    }
    Ok(())
}
