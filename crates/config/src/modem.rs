//! `[link.modem]`: source of the radio's current rate.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use bentpipe_dlep::DEFAULT_PORT;
use serde::Deserialize;
use toml::Spanned;

use super::{ConfigError, Source};

/// Maximum plausible overhead that a modem adds to a packet.
const MAX_PER_PACKET_OVERHEAD: u16 = 256;

/// Source of the radio's current rate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModemConfig {
    /// Protocol and location of the source.
    pub source: ModemSource,
    /// Bytes that the modem counts for each packet in addition to the IP packet.
    pub per_packet_overhead: u16,
}

/// Protocol and location of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModemSource {
    /// A modem that speaks DLEP (RFC 8175).
    Dlep(ModemDiscovery),
    /// A file that contains a rate.
    File(PathBuf),
}

/// Address of the modem, or the interface to discover it on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModemDiscovery {
    /// The modem has this address.
    At(SocketAddr),
    /// The modem answers discovery on this interface.
    On(String),
}

/// The table as written in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenModem {
    protocol: Spanned<Protocol>,
    address: Option<Spanned<String>>,
    interface: Option<Spanned<String>>,
    file: Option<Spanned<PathBuf>>,
    per_packet_overhead: Option<Spanned<u16>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Protocol {
    Dlep,
    File,
}

impl WrittenModem {
    pub fn check(&self, source: &Source<'_>) -> Result<ModemConfig, ConfigError> {
        let per_packet_overhead =
            self.per_packet_overhead.as_ref().map_or(0, |bytes| *bytes.get_ref());
        if per_packet_overhead > MAX_PER_PACKET_OVERHEAD {
            let span = self.per_packet_overhead.as_ref().map(Spanned::span);
            let why = format!("{per_packet_overhead} bytes on top of every packet cannot be");
            let help = format!(
                "write what the modem counts beside the IP packet, at most {MAX_PER_PACKET_OVERHEAD}: \
                 per-packet-overhead = 18 for an Ethernet header and checksum"
            );
            return Err(ConfigError::at(source, span, why, help));
        }
        let from = match self.protocol.get_ref() {
            Protocol::Dlep => self.dlep(source)?,
            Protocol::File => self.file(source)?,
        };
        Ok(ModemConfig { source: from, per_packet_overhead })
    }

    fn dlep(&self, source: &Source<'_>) -> Result<ModemSource, ConfigError> {
        let misplaced = self.file.as_ref().map(Spanned::span);
        self.refuse(source, misplaced, "\"file\" is for protocol = \"file\"")?;
        let finding = match (&self.address, &self.interface) {
            (Some(address), None) => ModemDiscovery::At(modem_address(source, address)?),
            (None, Some(interface)) => {
                source.interface_name(interface, "interface = \"eth2\"")?;
                ModemDiscovery::On(interface.get_ref().clone())
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

/// Parses an address with or without a port; the default is DLEP's port.
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
