//! `bentpipe status`: shows a gateway's current traffic from its status file.

mod table;
mod watch;

use std::error::Error;
use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bentpipe_gateway::status::{Document, ReadError, read};

use bentpipe_cli::out::{has_failed, say, show};
use watch::{Found, News, Watch};

/// Polling interval for a new file.
const LOOK: Duration = Duration::from_millis(200);

/// Clears a terminal and moves the cursor to the top.
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Status file to show.
#[derive(clap::Args)]
pub struct Status {
    /// File named by `file` in `[status]` of the gateway's configuration.
    #[arg(value_name = "FILE", default_value = "/run/bentpipe/status.json")]
    file: PathBuf,
    /// Show it again whenever the gateway has written it, until interrupted, and report missing
    /// updates.
    #[arg(long)]
    watch: bool,
}

pub fn run(status: &Status) -> Result<(), Box<dyn Error>> {
    let first = read(&status.file)?;
    let age = age(&first);
    show!("{}", table::of(&first, age));
    if !status.watch {
        return Ok(());
    }
    let terminal = std::io::stdout().is_terminal();
    let began = Instant::now();
    let mut watch = Watch::new(first, age, terminal);
    while !has_failed() {
        std::thread::sleep(LOOK);
        let found = look(&status.file)?;
        let Some(news) = watch.look(found, began.elapsed()) else { continue };
        if terminal {
            show!("{CLEAR}");
        }
        match news {
            News::New => show!("{}", table::of(watch.last(), self::age(watch.last()))),
            // On a terminal, the last numbers stay visible.
            News::Quiet(quiet) if terminal => show!("{}", table::of(watch.last(), quiet)),
            News::Quiet(quiet) => say!("{}", table::no_news(quiet)),
            News::Gone(why) if terminal => {
                show!("{}\n{why}\n", table::of(watch.last(), Duration::ZERO));
            }
            News::Gone(why) => say!("{why}"),
        }
    }
    Ok(())
}

/// Reads the current file. A file that cannot be read is not an error, because the gateway may be
/// starting.
fn look(file: &Path) -> Result<Found, ReadError> {
    match read(file) {
        Ok(document) => Ok(Found::Document(document)),
        Err(ReadError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound => {
            Ok(Found::Nothing(format!("{} is gone: the gateway has stopped", file.display())))
        }
        Err(ReadError::Unreadable { source, .. }) => {
            Ok(Found::Nothing(format!("{} cannot be read: {source}", file.display())))
        }
        Err(error) => Err(error),
    }
}

/// Age of the document.
fn age(document: &Document) -> Duration {
    // A clock before 1970 has not been set.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.saturating_sub(Duration::from_millis(document.written_unix_ms))
}
