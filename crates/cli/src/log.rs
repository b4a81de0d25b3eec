//! The log on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Writes warnings to stderr, for a command that runs no gateway.
pub fn warnings() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .without_time()
        .with_target(false)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// Writes the log to stderr, filtered by `RUST_LOG`.
pub fn all() {
    let (filter, unused) = match EnvFilter::try_from_default_env() {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new("info"), Some(error)),
    };
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
    if let Some(error) = unused.filter(|_| std::env::var_os(EnvFilter::DEFAULT_ENV).is_some()) {
        tracing::warn!(%error, "RUST_LOG is not a filter, so the level is info");
    }
}
