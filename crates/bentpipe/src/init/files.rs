//! Files that `init` writes, or shows with `--dry-run`. No file with other content is replaced,
//! except a configuration to which an aircraft is added, and then the message says so.

use std::error::Error;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use bentpipe_link::SecretKey;
use bentpipe_net::atomic_file;

use crate::keys;

/// Permissions of a configuration, which holds no secret.
const CONFIG_MODE: u32 = 0o644;

/// Writer of files.
#[derive(Clone, Copy)]
pub struct Files {
    /// `true` if nothing is written.
    pub dry_run: bool,
}

impl Files {
    /// Makes the folder if it is missing.
    pub fn folder(self, folder: &Path) -> Result<(), Box<dyn Error>> {
        if folder.is_dir() {
            return Ok(());
        }
        if self.dry_run {
            eprintln!("would make the folder {}", folder.display());
            return Ok(());
        }
        fs::create_dir_all(folder).map_err(|error| explain("make", folder, &error))?;
        eprintln!("{}: made", folder.display());
        Ok(())
    }

    /// Writes a private key that only its owner may read. `file` must not exist.
    pub fn key(self, file: &Path, key: &SecretKey) -> Result<(), Box<dyn Error>> {
        if self.dry_run {
            eprintln!("would write {} (mode 600): a private key", file.display());
            return Ok(());
        }
        keys::write(file, &key.to_base64())?;
        eprintln!("{}: written, only for its owner to read", file.display());
        Ok(())
    }

    /// Writes a configuration. `before` is its content until now; `None` if it does not exist.
    pub fn config(
        self,
        file: &Path,
        text: &str,
        before: Option<&str>,
    ) -> Result<(), Box<dyn Error>> {
        let (would, done) = match before {
            None => ("would write", "written"),
            Some(_) => ("would add to", "added to; the rest is as it was"),
        };
        let new = before.and_then(|before| text.strip_prefix(before)).unwrap_or(text);
        if self.dry_run {
            eprintln!("{would} {}:\n\n{}\n", file.display(), indented(new));
            return Ok(());
        }
        let mode = fs::metadata(file).map_or(CONFIG_MODE, |it| it.permissions().mode() & 0o777);
        atomic_file::replace_durably(file, text.as_bytes(), mode)
            .map_err(|error| explain("write", file, &error))?;
        eprintln!("{}: {done}", file.display());
        Ok(())
    }
}

/// Content of `file`; `None` if it does not exist.
pub fn existing(file: &Path) -> Result<Option<String>, Box<dyn Error>> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(explain("read", file, &error).into()),
    }
}

/// TOML's notation of a text.
pub fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn explain(what: &str, path: &Path, error: &std::io::Error) -> String {
    let hint = match error.kind() {
        ErrorKind::PermissionDenied => "\nrun it as root, or name another folder with --folder",
        _ => "",
    };
    format!("cannot {what} {}: {error}{hint}", path.display())
}

fn indented(text: &str) -> String {
    let line = |line: &str| if line.is_empty() { String::new() } else { format!("    {line}") };
    text.trim().lines().map(line).collect::<Vec<_>>().join("\n")
}
