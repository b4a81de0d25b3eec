//! Parsing shared by several tables: files, interfaces, addresses, keys.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bentpipe_link::SecretKey;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::applies;
use super::error::ConfigError;
use super::key::{self, KeyFileError};
use super::placed::Placed;
use super::service;
use super::source::Source;

impl Source<'_> {
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ConfigError> {
        toml::from_str(self.text).map_err(|error| ConfigError::from_toml(self, &error))
    }

    /// Resolves `path` relative to the configuration file.
    pub fn beside(&self, path: &Path) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Content of the PEM file at `path`.
    pub fn pem(&self, path: &Placed<PathBuf>) -> Result<Vec<u8>, ConfigError> {
        self.pem_by(path, |full| std::fs::read(full))
    }

    /// Content of a private key's PEM file. Logs a warning if other users can read it.
    pub fn pem_key(&self, path: &Placed<PathBuf>) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
        self.pem_by(path, key::secret_bytes)
    }

    pub fn pem_by<T>(
        &self,
        path: &Placed<PathBuf>,
        read: impl Fn(&Path) -> std::io::Result<T>,
    ) -> Result<T, ConfigError> {
        let full = self.beside(path);
        read(&full).map_err(|error| {
            let why = format!("{} cannot be read: {error}", full.display());
            path.error(self, why, "name a PEM file that this user may read")
        })
    }

    /// Rejects text that cannot be an interface's name; `example` shows a valid one.
    pub fn check_interface(&self, name: &Placed<String>, example: &str) -> Result<(), ConfigError> {
        let text = &**name;
        // The kernel's rule for names, without the characters that nft would read as syntax.
        let good = (1..16).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.@".contains(&b));
        if good {
            return Ok(());
        }
        let why = format!("{text:?} is not the name of a network interface");
        Err(name.error(self, why, format!("`ip link` lists them: {example}")))
    }

    /// Rejects two of the `keys` in `table` that would listen at the same address.
    pub fn listen_apart(
        &self,
        table: &str,
        keys: &[(&'static str, Option<SocketAddr>)],
    ) -> Result<(), ConfigError> {
        let set = || keys.iter().filter_map(|(key, at)| Some((*key, (*at)?)));
        for (at, (key, address)) in set().enumerate() {
            let same = |(_, other): &(_, SocketAddr)| {
                let any = other.ip().is_unspecified() || address.ip().is_unspecified();
                other.port() == address.port()
                    && address.port() != 0
                    && (any || other.ip() == address.ip())
            };
            if let Some((first, _)) = set().take(at).find(same) {
                let why = format!("{key} and {first} would listen at the same address");
                let place = applies::place_of(self, table, key)?;
                return Err(ConfigError::at(self, place, why, "give one of them another port"));
            }
        }
        Ok(())
    }

    /// State file: as written; otherwise in the service manager's folder for state, or next to the
    /// key.
    pub fn state_file(&self, written: Option<PathBuf>, key: &Placed<PathBuf>) -> PathBuf {
        match written {
            Some(path) => self.beside(&path),
            None => {
                let beside = self.beside(key).with_extension("state");
                service::state_file(&beside).unwrap_or(beside)
            }
        }
    }

    /// Reads the private key at `path`.
    pub fn private_key(&self, path: &Placed<PathBuf>) -> Result<SecretKey, ConfigError> {
        if path.to_str().is_some_and(|text| text.parse::<SecretKey>().is_ok()) {
            // The error shows the line without the key.
            let why = "private-key-file holds a key, and not the name of a file";
            let help = "write the key into a file that only this user may read, and name that file";
            return Err(path.error(self, why, help));
        }
        let written = self.beside(path);
        let full = service::credential(&written).unwrap_or(written);
        key::read(&full).map_err(|error| {
            let help = match &error {
                KeyFileError::Unreadable { source, .. }
                    if source.kind() != std::io::ErrorKind::NotFound =>
                {
                    "it is there: let this user read it, or name another file".to_owned()
                }
                KeyFileError::Content(_) => format!(
                    "move it away, and make a key with `bentpipe keys --out {}`",
                    full.display()
                ),
                KeyFileError::Unreadable { .. } => {
                    format!("make one with `bentpipe keys --out {}`", full.display())
                }
            };
            path.error(self, error.to_string(), help)
        })
    }
}
