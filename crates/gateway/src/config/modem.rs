//! `[link.modem]`: who knows how fast the radio is.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use bentpipe_dlep::DEFAULT_PORT;
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, Source};
use crate::rate::dlep::Finding;

/// The most that a modem can plausibly add to a packet.
const MAX_FRAMING_BYTES: u16 = 256;

/// Source of the radio's present rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModemConfig {
    /// Source to ask.
    pub source: ModemSource,
    /// Bytes that the modem counts for each packet beyond its IP bytes.
    pub framing_bytes: u16,
}

/// Source to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModemSource {
    /// A modem that speaks DLEP (RFC 8175).
    Dlep(Finding),
    /// A file with a rate in it.
    File(PathBuf),
}

/// The table as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenModem {
    protocol: Spanned<Protocol>,
    address: Option<Spanned<String>>,
    interface: Option<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
    framing_bytes: Option<Spanned<u16>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Protocol {
    Dlep,
    File,
}

impl WrittenModem {
    pub fn check(&self, source: &Source<'_>) -> Result<ModemConfig, ConfigError> {
        let framing_bytes = self.framing_bytes.as_ref().map_or(0, |bytes| *bytes.get_ref());
        if framing_bytes > MAX_FRAMING_BYTES {
            let span = self.framing_bytes.as_ref().map(Spanned::span);
            let why = format!("{framing_bytes} bytes on top of every packet cannot be");
            let help = format!(
                "write what the modem counts beside the IP packet, at most {MAX_FRAMING_BYTES}: \
                 framing-bytes = 18 for an Ethernet header and checksum"
            );
            return Err(ConfigError::at(source, span, why, help));
        }
        let from = match self.protocol.get_ref() {
            Protocol::Dlep => self.dlep(source)?,
            Protocol::File => self.file(source)?,
        };
        Ok(ModemConfig { source: from, framing_bytes })
    }

    fn dlep(&self, source: &Source<'_>) -> Result<ModemSource, ConfigError> {
        let misplaced = self.file.as_ref().map(Spanned::span);
        self.refuse(source, misplaced, "\"file\" is for protocol = \"file\"")?;
        let finding = match (&self.address, &self.interface) {
            (Some(address), None) => Finding::At(modem_address(source, address)?),
            (None, Some(interface)) => {
                source.interface_name(interface, "interface = \"eth2\"")?;
                Finding::On(interface.get_ref().clone())
            }
            (Some(_), Some(interface)) => {
                let why = "the modem has an address and need not be looked for".to_owned();
                let help = "leave out either address or interface".to_owned();
                return Err(ConfigError::at(source, Some(interface.span()), why, help));
            }
            (None, None) => {
                let why = "nothing says where the modem is".to_owned();
                let help = "write interface = \"eth2\", where it is looked for, or address = \
                            \"192.0.2.2\", where it is";
                let span = Some(self.protocol.span());
                return Err(ConfigError::at(source, span, why, help.to_owned()));
            }
        };
        Ok(ModemSource::Dlep(finding))
    }

    fn file(&self, source: &Source<'_>) -> Result<ModemSource, ConfigError> {
        for misplaced in [&self.address, &self.interface].into_iter().flatten() {
            self.refuse(source, Some(misplaced.span()), "this is for protocol = \"dlep\"")?;
        }
        match &self.file {
            Some(file) => Ok(ModemSource::File(source.beside(file.get_ref()))),
            None => {
                let why = "nothing says which file the rate is in".to_owned();
                let help = "write file = \"/run/modem-rate\"".to_owned();
                Err(ConfigError::at(source, Some(self.protocol.span()), why, help))
            }
        }
    }

    fn refuse(
        &self,
        source: &Source<'_>,
        span: Option<std::ops::Range<usize>>,
        why: &str,
    ) -> Result<(), ConfigError> {
        let refuse = |span| ConfigError::at(source, Some(span), why.into(), "leave it out".into());
        span.map_or(Ok(()), |span| Err(refuse(span)))
    }
}

/// An address with or without DLEP's port.
fn modem_address(source: &Source<'_>, text: &Spanned<String>) -> Result<SocketAddr, ConfigError> {
    let written = text.get_ref();
    let bare = IpAddr::from_str(written).map(|ip| SocketAddr::new(ip, DEFAULT_PORT));
    bare.or_else(|_| SocketAddr::from_str(written)).map_err(|_| {
        let why = format!("{written:?} is no address");
        let help = format!(
            "write address = \"192.0.2.2\", which means port {DEFAULT_PORT}, or \
             \"192.0.2.2:{DEFAULT_PORT}\""
        );
        ConfigError::at(source, Some(text.span()), why, help)
    })
}
