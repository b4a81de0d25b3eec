//! Standard output, which may be closed early: `bentpipe check air.toml | head -1`.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

/// First error on standard output; later output is discarded.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Prints a line, as `println!` does, but never panics: see [`result`].
#[doc(hidden)]
#[macro_export]
macro_rules! __say {
    ($($line:tt)*) => { $crate::out::line(format_args!($($line)*)) };
}
pub use __say as say;

/// Prints text like `say!`, but without ending the line.
#[doc(hidden)]
#[macro_export]
macro_rules! __show {
    ($($text:tt)*) => { $crate::out::text(format_args!($($text)*)) };
}
pub use __show as show;

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

/// Returns `true` if output has failed, so that endless output can stop.
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
