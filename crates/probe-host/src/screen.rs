//! The terminal: a table in place, plain lines if standard output is not a terminal, or nothing.

use std::io::{self, ErrorKind, IsTerminal, Write};

use bentpipe_probe::clock::Moment;
use bentpipe_probe::live::Live;

/// Moves the cursor to the top, clears to the end of a line, clears everything below.
const HOME: &str = "\x1b[H";
const END_OF_LINE: &str = "\x1b[K\r\n";
const BELOW: &str = "\x1b[J";
const CLEAR: &str = "\x1b[2J";

/// Times of the first plain tables, and the interval of the others, in seconds.
const PLAIN_FIRST_S: u64 = 4;
const PLAIN_SECOND_S: u64 = 10;
const PLAIN_EVERY_S: u64 = 60;

/// Output of a run.
#[derive(Debug)]
pub enum Screen {
    /// A table in place, once a second.
    Terminal,
    /// The table as lines, once a minute.
    Plain {
        /// Time of the next one, in seconds since the start.
        next_s: u64,
    },
    /// Nothing.
    Quiet,
}

impl Screen {
    /// Output for this run.
    pub fn new(quiet: bool) -> Self {
        match (quiet, io::stdout().is_terminal()) {
            (true, _) => Self::Quiet,
            (false, true) => Self::Terminal,
            (false, false) => Self::Plain { next_s: PLAIN_FIRST_S },
        }
    }

    /// Prints the first line.
    pub fn begin(&self, heading: &str) -> io::Result<()> {
        match self {
            Self::Terminal => write(&format!("{CLEAR}{HOME}{heading}\r\n")),
            Self::Plain { .. } => write(&format!("{heading}\n")),
            Self::Quiet => Ok(()),
        }
    }

    /// Shows the table `since_s` seconds after the start. Returns `false` if nobody reads it any more.
    pub fn show(
        &mut self,
        live: &mut Live,
        heading: &str,
        now: Moment,
        since_s: u64,
    ) -> io::Result<bool> {
        let result = match self {
            Self::Quiet => return Ok(true),
            Self::Terminal => {
                let mut text = format!("{HOME}{heading}{END_OF_LINE}{END_OF_LINE}");
                for line in live.lines(now.boot_us) {
                    text.push_str(&clean(&line));
                    text.push_str(END_OF_LINE);
                }
                text.push_str(BELOW);
                write(&text)
            }
            Self::Plain { next_s } if since_s < *next_s => return Ok(true),
            Self::Plain { next_s } => {
                *next_s = match since_s < PLAIN_SECOND_S {
                    true => PLAIN_SECOND_S,
                    false => (since_s / PLAIN_EVERY_S + 1) * PLAIN_EVERY_S,
                };
                plain(live, now)
            }
        };
        match result {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            other => other.map(|()| true),
        }
    }
}

fn plain(live: &mut Live, now: Moment) -> io::Result<()> {
    let mut text = format!("\n{} UTC\n", now.utc());
    for line in live.lines(now.boot_us) {
        text.push_str(&clean(&line));
        text.push('\n');
    }
    write(&text)
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Addresses of portals come from the network; control characters must not reach the terminal.
fn clean(line: &str) -> String {
    line.chars().filter(|c| !c.is_control()).collect()
}
