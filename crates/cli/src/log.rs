//! The log on standard error.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::IsTerminal;
use std::sync::OnceLock;

use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

/// Environment variable that sets the [`Format`] if no argument does.
pub const FORMAT_VARIABLE: &str = "BENTPIPE_LOG_FORMAT";

/// Environment variable with the levels by part of the program, such as `info,bentpipe_link=debug`.
const FILTER_VARIABLE: &str = "RUST_LOG";

/// Form of each line on stderr.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Lines for people.
    #[default]
    Text,
    /// One JSON object a line, for programs.
    Json,
}

/// Format of this process; text until [`set_format`].
static FORMAT: OnceLock<Format> = OnceLock::new();

impl Format {
    /// Returns the format that `arguments` or the environment request, for a command line that has
    /// an error.
    pub fn of_faulty<A: AsRef<OsStr>>(arguments: &[A]) -> Self {
        let argument = |number: usize| arguments.get(number).and_then(|it| it.as_ref().to_str());
        let mut given = (0..arguments.len()).filter_map(|number| match argument(number)? {
            "--log-format" => argument(number + 1),
            argument => argument.strip_prefix("--log-format="),
        });
        let in_environment = || std::env::var(FORMAT_VARIABLE).ok();
        match given.next().map(str::to_owned).or_else(in_environment).as_deref() {
            Some("json") => Self::Json,
            _ => Self::Text,
        }
    }
}

/// Sets the format of all that this process writes to stderr. The first call counts.
pub fn set_format(format: Format) {
    if FORMAT.set(format).is_ok() && format == Format::Json {
        // A panic is an event too. Otherwise it would print several lines of text.
        std::panic::set_hook(Box::new(|panic| write_json(panic)));
    }
}

fn format() -> Format {
    FORMAT.get().copied().unwrap_or_default()
}

/// Writes warnings to stderr, for a command that runs no gateway.
pub fn warnings() {
    let log = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_target(false)
        .with_writer(std::io::stderr)
        .with_ansi(format() == Format::Text && std::io::stderr().is_terminal());
    match format() {
        Format::Text => log.without_time().init(),
        Format::Json => log.json().with_current_span(false).with_span_list(false).init(),
    }
}

/// Writes the log to stderr, filtered by `RUST_LOG`.
pub fn all() {
    let given = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let (filter, unused) = match given.parse() {
        Ok(filter) if !given.is_empty() => (filter, None),
        Ok(_) => (Targets::new().with_default(tracing::Level::INFO), None),
        Err(error) => (Targets::new().with_default(tracing::Level::INFO), Some(error)),
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(std::io::stderr)
        .with_ansi(format() == Format::Text && std::io::stderr().is_terminal());
    match format() {
        Format::Text => log.finish().with(filter).init(),
        Format::Json => {
            log.json().with_current_span(false).with_span_list(false).finish().with(filter).init();
        }
    }
    if let Some(error) = unused {
        tracing::warn!(%error, "RUST_LOG is not a filter, so the level is info");
    }
}

/// Writes the log to stderr if `RUST_LOG` is set, for a command whose own output is the news.
pub fn if_requested() {
    if std::env::var_os(FILTER_VARIABLE).is_some() {
        all();
    }
}

/// Writes the error that ends the command `program`, whatever `RUST_LOG` says.
pub fn failure(program: &str, error: &dyn Display) {
    match format() {
        Format::Text => eprintln!("{program}: {error}"),
        Format::Json => write_json(error),
    }
}

/// The error with its causes. A cause that the message before it contains is left out.
pub fn causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut last = text.clone();
    let mut next = error.source();
    while let Some(cause) = next {
        let message = cause.to_string();
        if !last.contains(&message) {
            text += ": ";
            text += &message;
        }
        last = message;
        next = cause.source();
    }
    text
}

fn write_json(error: &dyn Display) {
    let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).json();
    let log = log.with_current_span(false).with_span_list(false).finish();
    tracing::subscriber::with_default(log, || tracing::error!("{error}"));
}

#[cfg(test)]
mod tests {
    use std::error::Error;
    use std::fmt;

    use super::Format::{self, Json, Text};
    use super::causes;

    /// An error with its cause.
    #[derive(Debug)]
    struct Step(&'static str, Option<Box<Step>>);

    impl fmt::Display for Step {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Step {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn every_cause_of_an_error_is_shown_once() {
        let denied = Step("permission denied", None);
        let opened = Step("cannot open the tunnel (permission denied)", Some(Box::new(denied)));
        let error = Step("cell 3, seed 1", Some(Box::new(opened)));
        assert_eq!(causes(&error), "cell 3, seed 1: cannot open the tunnel (permission denied)");
        let error = Step("no session", Some(Box::new(Step("the gateway ended", None))));
        assert_eq!(causes(&error), "no session: the gateway ended");
        assert_eq!(causes(&Step("alone", None)), "alone");
    }

    #[test]
    fn a_faulty_command_line_still_says_its_format() {
        let of = |line: &str| Format::of_faulty(&line.split(' ').collect::<Vec<_>>());
        assert_eq!(of("bentpipe ground --log-format json --confg ground.toml"), Json);
        assert_eq!(of("bentpipe --log-format=json grond"), Json);
        assert_eq!(of("bentpipe --log-format text grond"), Text);
        assert_eq!(of("bentpipe grond --log-format"), Text);
    }
}
