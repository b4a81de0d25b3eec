//! Standard output, which may end before we do: `bentpipe check air.toml | head -1`.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

/// First error on standard output; nothing is written from then on.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Prints a line, as `println!` does, but never panics: see [`result`].
macro_rules! say {
    ($($line:tt)*) => { $crate::out::line(format_args!($($line)*)) };
}
pub(crate) use say;

/// The same without ending the line.
macro_rules! show {
    ($($text:tt)*) => { $crate::out::text(format_args!($($text)*)) };
}
pub(crate) use show;

/// Writes `text` and ends the line.
pub fn line(text: fmt::Arguments<'_>) {
    self::text(format_args!("{text}\n"));
}

/// Writes `text`.
pub fn text(text: fmt::Arguments<'_>) {
    if FAILED.get().is_none()
        && let Err(error) = io::stdout().lock().write_fmt(text)
    {
        let _ = FAILED.set(error);
    }
}

/// Returns `true` if nothing is written any more: a command that prints without end ends then.
pub fn has_failed() -> bool {
    FAILED.get().is_some()
}

/// Returns the first error, if any. A reader who closed the pipe is not a failure.
pub fn result() -> Result<(), String> {
    match FAILED.get() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(format!("writing to standard output failed: {error}"))
        }
        _ => Ok(()),
    }
}
