//! `bentpipe preload`: a run through the manifest of the portal's content.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use bentpipe_cli::out::say;
use bentpipe_gateway::config::DEFAULT_PRELOAD_SOCKET;
use bentpipe_gateway::preload::{Event, Outcome, Summary};
use bentpipe_units::ByteSize;

/// Maximum length of an event, bytes: an address and a reason.
const MAX_EVENT_BYTES: u64 = 64 << 10;

/// Run through the manifest.
#[derive(clap::Args)]
pub struct Preload {
    /// Socket that `socket` in `[preload]` of the gateway's configuration names.
    #[arg(value_name = "SOCKET", default_value = DEFAULT_PRELOAD_SOCKET)]
    socket: PathBuf,
    /// Show every address, and not only those that could not be preloaded.
    #[arg(long)]
    all: bool,
}

pub fn run(preload: &Preload) -> Result<(), Box<dyn Error>> {
    let events = UnixStream::connect(&preload.socket).map_err(|error| {
        format!(
            "no gateway answers at {}: {error}; name the socket of a running gateway's [preload], as \
             root or as its user",
            preload.socket.display()
        )
    })?;
    let mut lines = BufReader::new(events);
    loop {
        let event = next_event(&mut lines, &preload.socket)?;
        if let Some(text) = text(&event, preload.all) {
            say!("{text}");
        }
        match event {
            Event::Ended(summary) if summary.is_complete() => return Ok(()),
            Event::Ended(Summary { failed, refused, .. }) => {
                return Err(
                    format!("addresses that are not preloaded: {}", failed + refused).into()
                );
            }
            Event::Refused { why } => return Err(plain(&why).into()),
            Event::WrongLine { .. } | Event::Object { .. } => {}
        }
    }
}

fn next_event(lines: &mut impl BufRead, socket: &Path) -> Result<Event, Box<dyn Error>> {
    let mut line = String::new();
    lines.take(MAX_EVENT_BYTES).read_line(&mut line)?;
    if line.is_empty() {
        return Err("the gateway ended before the run did: run this again when it is back".into());
    }
    serde_json::from_str(&line)
        .map_err(|error| format!("{} is not a preload socket: {error}", socket.display()).into())
}

/// Line for people; `None` if it is shown only with `--all`.
fn text(event: &Event, all: bool) -> Option<String> {
    match event {
        Event::WrongLine { line, why } => {
            Some(format!("line {line} of the manifest: {}", plain(why)))
        }
        Event::Object { url, outcome, bytes, why } => {
            let name = match outcome {
                Outcome::Stored => "stored",
                Outcome::Confirmed => "confirmed",
                Outcome::Failed => "failed",
                Outcome::Refused => "refused",
            };
            let url = plain(url);
            match why {
                Some(why) => Some(format!("{name} {url}: {}", plain(why))),
                None if *outcome == Outcome::Stored && all => {
                    Some(format!("{name} {url} ({})", ByteSize::from_bytes(*bytes)))
                }
                None => all.then(|| format!("{name} {url}")),
            }
        }
        Event::Ended(Summary { stored, confirmed, failed, refused, bytes }) => Some(format!(
            "{stored} stored, {confirmed} confirmed, {failed} failed, {refused} refused; {} over the link",
            ByteSize::from_bytes(*bytes)
        )),
        Event::Refused { .. } => None,
    }
}

/// Replaces control characters, so that nothing moves a terminal's cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    /// Runs the command against a gateway that sends `events`.
    fn against(events: &[Event]) -> Result<(), String> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("preload.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let lines: String =
            events.iter().map(|event| serde_json::to_string(event).unwrap() + "\n").collect();
        let gateway = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(lines.as_bytes()).unwrap();
        });
        let result = run(&Preload { socket, all: false });
        gateway.join().unwrap();
        result.map_err(|error| error.to_string())
    }

    #[test]
    fn the_exit_status_says_whether_everything_is_preloaded() {
        let ended = |failed| Event::Ended(Summary { stored: 2, failed, ..Summary::default() });
        assert_eq!(against(&[ended(0)]), Ok(()));
        assert_eq!(against(&[ended(1)]), Err("addresses that are not preloaded: 1".to_owned()));
        let why = "another run is in progress".to_owned();
        assert_eq!(against(&[Event::Refused { why: why.clone() }]), Err(why));
        assert!(against(&[]).unwrap_err().contains("the gateway ended"));
        let nowhere = Preload { socket: "/nowhere/preload.sock".into(), all: false };
        assert!(run(&nowhere).unwrap_err().to_string().contains("no gateway answers"));
    }

    #[test]
    fn failures_are_shown_with_their_reason() {
        let object = |outcome, why: Option<&str>| Event::Object {
            url: "http://a.test/2".to_owned(),
            outcome,
            bytes: 3 << 20,
            why: why.map(str::to_owned),
        };
        let refused = object(Outcome::Refused, Some("it sets a cookie\u{1b}[2J"));
        let shown = text(&refused, false).unwrap();
        assert_eq!(shown, "refused http://a.test/2: it sets a cookie?[2J");
        assert_eq!(text(&object(Outcome::Stored, None), false), None);
        let stored = text(&object(Outcome::Stored, None), true).unwrap();
        assert_eq!(stored, "stored http://a.test/2 (3 MiB)");
    }
}
