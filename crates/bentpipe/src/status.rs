//! `bentpipe status`: what a gateway carries now, from the file that it writes.

mod table;

use std::error::Error;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_gateway::status::{ReadError, read};

use crate::out::{has_failed, show};

/// How often it is looked for a new file.
const LOOK: Duration = Duration::from_millis(200);

/// Clears a terminal and goes to its top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// What to show.
#[derive(clap::Args)]
pub struct Status {
    /// What `file` in `[status]` of the gateway's configuration names.
    #[arg(value_name = "FILE", default_value = "/run/bentpipe/status.json")]
    file: PathBuf,
    /// Show it again whenever the gateway has written it, until interrupted.
    #[arg(long)]
    watch: bool,
}

pub fn run(status: &Status) -> Result<(), Box<dyn Error>> {
    let mut last = show(&status.file, None)?;
    if !status.watch {
        return Ok(());
    }
    while !has_failed() {
        std::thread::sleep(LOOK);
        match show(&status.file, Some(last)) {
            Ok(shown) => last = shown,
            // The gateway is being started again, perhaps.
            Err(error) if matches!(error.downcast_ref(), Some(ReadError::Unreadable { .. })) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Prints the file unless it is the one that was shown last; says when it was written.
fn show(file: &Path, last: Option<u64>) -> Result<u64, Box<dyn Error>> {
    let document = read(file)?;
    let written = document.written_unix_ms;
    if last == Some(written) {
        return Ok(written);
    }
    // A clock before 1970 is one that nobody has set.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let age = now.saturating_sub(Duration::from_millis(written));
    let clear = if last.is_some() && std::io::stdout().is_terminal() { CLEAR } else { "" };
    show!("{clear}{}", table::of(&document, age));
    Ok(written)
}
