//! Arguments and output that several commands use.

use std::error::Error;
use std::path::{Path, PathBuf};

use bentpipe_lab::result::{Row, write_json};
use clap::Args;

pub type Outcome = Result<(), Box<dyn Error>>;

/// Default link profile.
pub const DEFAULT_PROFILE: &str = "mss";

/// Link, and output file.
#[derive(Args)]
pub struct LinkArgs {
    /// The link: a built-in profile, or a file that ends in .toml.
    #[arg(long, value_name = "PROFILE", default_value = DEFAULT_PROFILE)]
    pub profile: String,
    /// Seed of the link's losses.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Write the figures to this file, as an array of rows.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Returns a sentence for this number of missed targets.
pub fn missed_words(count: usize) -> String {
    match count {
        1 => "a target is missed".into(),
        _ => format!("{count} targets are missed"),
    }
}

/// Checks that the file can be written, so that minutes of measurements do not end with an error.
pub fn check_writable(json: Option<&Path>) -> Outcome {
    if let Some(path) = json {
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

/// Writes the rows if a file is given.
pub fn write(json: Option<&Path>, rows: &[Row]) -> Outcome {
    json.map_or(Ok(()), |path| {
        write_json(path, rows)
            .map_err(|error| format!("cannot write {}: {error}", path.display()).into())
    })
}
