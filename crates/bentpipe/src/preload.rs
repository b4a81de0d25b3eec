//! `bentpipe preload`: what became of the portal's content, and another run of it.

use std::error::Error;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_gateway::preload::{Outcome, Report, State, request_file};
use bentpipe_units::ByteSize;

use crate::out::{say, show};

/// Report to show, or run to request.
#[derive(clap::Args)]
pub struct Preload {
    /// File that `report` in `[preload]` of the gateway's configuration names.
    #[arg(value_name = "FILE", default_value = "/var/lib/bentpipe/preload.json")]
    report: PathBuf,
    /// Ask the gateway that runs to go through the manifest now, whatever the time. Nothing is shown.
    #[arg(long)]
    now: bool,
    /// Show every address, and not only those that are not here as their origins have them now.
    #[arg(long)]
    all: bool,
}

pub fn run(preload: &Preload) -> Result<(), Box<dyn Error>> {
    if preload.now {
        return ask(&preload.report);
    }
    let report = Report::read(&preload.report)?;
    // A clock before 1970 is one that nobody has set.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    show!("{}", text(&report, now, preload.all));
    Ok(())
}

/// Makes the file that the gateway looks for.
fn ask(report: &Path) -> Result<(), Box<dyn Error>> {
    let file = request_file(report);
    match OpenOptions::new().write(true).create_new(true).open(&file) {
        Ok(_) => say!("asked for by {}; the gateway looks for it every 5 s", file.display()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            say!("it has been asked for already, and is not done: {}", file.display());
        }
        Err(error) => {
            let why = format!(
                "cannot write {}: {error}; name the report of a gateway's [preload], as its user",
                file.display()
            );
            return Err(why.into());
        }
    }
    Ok(())
}

/// The report for people.
fn text(report: &Report, now: Duration, all: bool) -> String {
    let ago = |unix_ms: u64| {
        let age = now.saturating_sub(Duration::from_millis(unix_ms)).as_secs();
        format!("{} h {} min ago", age / 3600, age / 60 % 60)
    };
    let state = match report.state {
        State::Running => "goes on",
        State::Complete => "is complete",
        State::OutOfTime => "ran out of time",
    };
    let mut text = format!(
        "the run that began {} {state}; written {}\n",
        ago(report.began_unix_ms),
        ago(report.written_unix_ms)
    );
    if let Some(error) = &report.error {
        text += &format!("{}\n", plain(error));
    }
    for outcome in Outcome::ALL {
        let count = report.count(outcome);
        if count > 0 {
            let _ = writeln!(text, "  {:<10} {count:>5}", outcome.name());
        }
    }
    let _ = writeln!(text, "  {} over the link", ByteSize::from_bytes(report.bytes));
    for wrong in &report.wrong_lines {
        let _ = writeln!(text, "line {} of the manifest: {}", wrong.line, plain(&wrong.why));
    }
    let is_fine = |outcome| matches!(outcome, Outcome::Stored | Outcome::Confirmed);
    for object in report.objects.iter().filter(|object| all || !is_fine(object.state)) {
        let older =
            if object.here && !is_fine(object.state) { " (an older one is here)" } else { "" };
        let _ = writeln!(text, "{} {}{older}", object.state.name(), plain(&object.url));
        if let Some(why) = &object.why {
            let _ = writeln!(text, "    {}", plain(why));
        }
    }
    text
}

/// So that nothing in a file moves a terminal's cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_gateway::preload::Manifest;

    fn report() -> Report {
        let manifest = Manifest::parse("http://a.test/1\nhttp://a.test/2\nportal\n", &[]);
        let mut report = Report::new(0, &manifest);
        (report.state, report.bytes) = (State::OutOfTime, 3 << 20);
        report.objects[0].state = Outcome::Stored;
        report.objects[1].state = Outcome::Refused;
        report.objects[1].why = Some("it sets a cookie\u{1b}[2J".to_owned());
        report.objects[1].here = true;
        report
    }

    #[test]
    fn what_is_not_here_is_told_with_its_reason() {
        let shown = text(&report(), Duration::from_secs(3720), false);
        let expected = "\
the run that began 1 h 2 min ago ran out of time; written 1 h 2 min ago
  stored         1
  refused        1
  3 MiB over the link
line 3 of the manifest: it is not an absolute URL: write http://example.net/path
refused http://a.test/2 (an older one is here)
    it sets a cookie?[2J
";
        assert_eq!(shown, expected);
        assert!(text(&report(), Duration::ZERO, true).contains("stored http://a.test/1\n"));
    }

    #[test]
    fn a_run_is_asked_for_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("preload.json");
        ask(&file).unwrap();
        ask(&file).unwrap();
        assert!(folder.path().join("preload.json.now").exists());
        let nowhere = ask(&folder.path().join("none").join("a")).unwrap_err().to_string();
        assert!(nowhere.contains("cannot write"), "{nowhere}");
        assert!(run(&Preload { report: file, now: false, all: false }).is_err());
    }
}
