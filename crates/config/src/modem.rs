//! `[link.modem]`: source of the radio's current rate.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use bentpipe_dlep::DEFAULT_PORT;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ConfigError, Placed, Source};

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

/// Source of the radio's current rate.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ModemTable {
    /// Protocol with the modem.
    protocol: Placed<Protocol>,
    /// Address of a modem with DLEP.
    #[schemars(title = "address, default port 854")]
    address: Option<Placed<String>>,
    /// Interface on which to look for the modem, instead of `address`.
    #[schemars(title = "name")]
    interface: Option<Placed<String>>,
    /// File that contains the rate, read each second; with `"file"`.
    #[schemars(title = "path")]
    file: Option<Placed<PathBuf>>,
    /// Overhead of the modem for each packet in addition to its IP bytes, at most 256.
    #[serde(default = "no_overhead")]
    #[schemars(title = "bytes")]
    per_packet_overhead: Placed<u16>,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Protocol {
    Dlep,
    File,
}

const fn no_overhead() -> Placed<u16> {
    Placed::nowhere(0)
}

impl ModemTable {
    pub fn check(&self, source: &Source<'_>) -> Result<ModemConfig, ConfigError> {
        let per_packet_overhead = *self.per_packet_overhead;
        if per_packet_overhead > MAX_PER_PACKET_OVERHEAD {
            let why = format!("{per_packet_overhead} bytes on top of every packet cannot be");
            let help = format!(
                "write what the modem counts beside the IP packet, at most {MAX_PER_PACKET_OVERHEAD}: \
                 per-packet-overhead = 18 for an Ethernet header and checksum"
            );
            return Err(self.per_packet_overhead.error(source, why, help));
        }
        let from = match *self.protocol {
            Protocol::Dlep => self.dlep(source)?,
            Protocol::File => self.file(source)?,
        };
        Ok(ModemConfig { source: from, per_packet_overhead })
    }

    fn dlep(&self, source: &Source<'_>) -> Result<ModemSource, ConfigError> {
        if let Some(file) = &self.file {
            let why = "\"file\" is for protocol = \"file\"";
            return Err(file.error(source, why, "leave it out"));
        }
        let finding = match (&self.address, &self.interface) {
            (Some(address), None) => ModemDiscovery::At(modem_address(source, address)?),
            (None, Some(interface)) => {
                source.check_interface(interface, "interface = \"eth2\"")?;
                ModemDiscovery::On(interface.to_string())
            }
            (Some(_), Some(interface)) => {
                let why = "the modem has an address and need not be looked for";
                return Err(interface.error(source, why, "leave out either address or interface"));
            }
            (None, None) => {
                let why = "nothing says where the modem is";
                let help = "write interface = \"eth2\", where it is looked for, or address = \
                            \"192.0.2.2\", where it is";
                return Err(self.protocol.error(source, why, help));
            }
        };
        Ok(ModemSource::Dlep(finding))
    }

    fn file(&self, source: &Source<'_>) -> Result<ModemSource, ConfigError> {
        if let Some(misplaced) = self.address.as_ref().or(self.interface.as_ref()) {
            let why = "this is for protocol = \"dlep\"";
            return Err(misplaced.error(source, why, "leave it out"));
        }
        self.file.as_ref().map(|file| ModemSource::File(source.beside(file))).ok_or_else(|| {
            let why = "nothing says which file the rate is in";
            self.protocol.error(source, why, "write file = \"/run/modem-rate\"")
        })
    }
}

/// Parses an address with or without a port; the default is DLEP's port.
fn modem_address(source: &Source<'_>, text: &Placed<String>) -> Result<SocketAddr, ConfigError> {
    let written = &**text;
    let bare = IpAddr::from_str(written).map(|ip| SocketAddr::new(ip, DEFAULT_PORT));
    bare.or_else(|_| SocketAddr::from_str(written)).map_err(|_| {
        let why = format!("{written:?} is not an address");
        let help = format!(
            "write address = \"192.0.2.2\", which means port {DEFAULT_PORT}, or \
             \"192.0.2.2:{DEFAULT_PORT}\""
        );
        text.error(source, why, help)
    })
}
