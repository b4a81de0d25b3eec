//! Networks as text. A single address stands for itself alone.

use std::str::FromStr;

use ipnet::IpNet;
use serde::de::{Deserialize, Deserializer, Error};

/// A network or a single address.
#[derive(Clone)]
pub struct Network(pub IpNet);

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match bentpipe_classify::net(text) {
            Some(net) => Ok(Self(net.trunc())),
            None => Err(format!(
                "{text:?} is not a network: write \"192.0.2.0/24\", \"2001:db8::/32\" or an address"
            )),
        }
    }
}

/// A list of networks.
pub fn list<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<IpNet>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let networks = texts.iter().map(|text| text.parse().map(|Network(network)| network));
    networks.collect::<Result<_, _>>().map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_address_is_a_network_of_its_own() {
        let parse = |text: &str| text.parse().map(|Network(network)| network.to_string());
        assert_eq!(parse("192.0.2.7").unwrap(), "192.0.2.7/32");
        assert_eq!(parse("2001:db8::1").unwrap(), "2001:db8::1/128");
        assert_eq!(parse("192.0.2.7/24").unwrap(), "192.0.2.0/24");
        assert!(parse("192.0.2.0/33").unwrap_err().contains("is not a network: write"));
    }
}
