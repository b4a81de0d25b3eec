//! Parsing shared by several tables: files, interfaces, addresses, keys.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bentpipe_link::SecretKey;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use super::applies;
use super::error::ConfigError;
use super::key::{self, KeyFileError};
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
    pub fn pem(&self, path: &toml::Spanned<PathBuf>) -> Result<Vec<u8>, ConfigError> {
        self.pem_by(path, |full| std::fs::read(full))
    }

    /// Content of a private key's PEM file. Logs a warning if other users can read it.
    pub fn pem_key(
        &self,
        path: &toml::Spanned<PathBuf>,
    ) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
        self.pem_by(path, key::secret_bytes)
    }

    pub fn pem_by<T>(
        &self,
        path: &toml::Spanned<PathBuf>,
        read: impl Fn(&Path) -> std::io::Result<T>,
    ) -> Result<T, ConfigError> {
        let full = self.beside(path.get_ref());
        read(&full).map_err(|error| {
            let why = format!("{} cannot be read: {error}", full.display());
            let help = "name a PEM file that this user may read".to_owned();
            ConfigError::at(self, Some(path.span()), why, help)
        })
    }

    /// Rejects text that cannot be an interface's name; `example` shows a valid one.
    pub fn interface_name(
        &self,
        name: &toml::Spanned<String>,
        example: &str,
    ) -> Result<(), ConfigError> {
        let text = name.get_ref();
        // The kernel's rule for names, without the characters that nft would read as syntax.
        let good = (1..16).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.@".contains(&b));
        if good {
            return Ok(());
        }
        let why = format!("{text:?} is not the name of a network interface");
        let help = format!("`ip link` lists them: {example}");
        Err(ConfigError::at(self, Some(name.span()), why, help))
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
                let help = "give one of them another port".to_owned();
                let place = applies::place_of(self, table, key)?;
                return Err(ConfigError::at(self, place, why, help));
            }
        }
        Ok(())
    }

    /// Reads the private key at `path`.
    pub fn private_key(&self, path: &toml::Spanned<PathBuf>) -> Result<SecretKey, ConfigError> {
        let full = self.beside(path.get_ref());
        key::read(&full).map_err(|error| {
            let help = match &error {
                KeyFileError::Unreadable { source, .. }
                    if source.kind() != std::io::ErrorKind::NotFound =>
                {
                    "it is there: let this user read it, or name another file".to_owned()
                }
                _ => format!("make one with `bentpipe keys --out {}`", full.display()),
            };
            ConfigError::at(self, Some(path.span()), error.to_string(), help)
        })
    }
}
