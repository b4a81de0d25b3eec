//! `[[rule]]` of `air.toml`: assigns a class to a flow.

use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;

use bentpipe_classify::{Domain, EncryptedHello, Ports, Protocol, Rule, Rules, Trusted, Who};
use bentpipe_schedule::{Class, Dscp};
use ipnet::IpNet;
use serde::Deserialize;
use serde::de::{SeqAccess, Visitor};

use super::classes::class;
use super::{ConfigError, Source};

/// Maximum number of rules in a file, because every new flow is compared with all of them.
pub const MAX_RULES: usize = 256;

/// Maximum number of values in one condition.
const MAX_VALUES: usize = 1024;

/// A rule as written in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenRule {
    #[serde(default)]
    name: String,
    #[serde(default)]
    domain: Values<Domain>,
    #[serde(default)]
    prefix: Values<Net>,
    #[serde(default)]
    port: Values<Ports>,
    #[serde(default)]
    protocol: Values<Protocol>,
    #[serde(default)]
    dscp: Values<Dscp>,
    #[serde(default)]
    passenger: Values<Who>,
    #[serde(deserialize_with = "class")]
    class: Class,
}

/// `[trusted]` as written in the file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenTrusted {
    passenger: Values<Who>,
    #[serde(default = "network", deserialize_with = "class")]
    highest_class: Class,
}

const fn network() -> Class {
    Class::Network
}

impl From<WrittenTrusted> for Trusted {
    fn from(written: WrittenTrusted) -> Self {
        Self { passengers: written.passenger.0, highest: written.highest_class }
    }
}

/// Values of `encrypted-hello`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum WrittenHello {
    #[default]
    Unknown,
    OuterName,
}

/// The rules of a file, checked.
pub(super) fn rules(
    source: &Source<'_>,
    written: Vec<toml::Spanned<WrittenRule>>,
    default: Class,
    hello: WrittenHello,
) -> Result<Rules, ConfigError> {
    if let Some(beyond) = written.get(MAX_RULES) {
        let why = format!("there are {} rules", written.len());
        let help = format!("{MAX_RULES} are allowed: put values of one class into one rule");
        return Err(ConfigError::at(source, Some(beyond.span()), why, help));
    }
    let encrypted_hello = match hello {
        WrittenHello::Unknown => EncryptedHello::Unknown,
        WrittenHello::OuterName => EncryptedHello::OuterName,
    };
    let mut rules = Vec::with_capacity(written.len());
    for one in written {
        rules.push(one.get_ref().check().map_err(|(why, help)| {
            ConfigError::at(source, Some(one.span()), why.to_owned(), help.to_owned())
        })?);
    }
    let trusted = Trusted::default();
    Ok(Rules { rules, default, trusted, encrypted_hello })
}

impl WrittenRule {
    fn check(&self) -> Result<Rule, (&'static str, &'static str)> {
        let rule = Rule {
            name: self.name.clone(),
            domains: self.domain.0.clone(),
            prefixes: self.prefix.0.iter().map(|net| net.0).collect(),
            ports: self.port.0.clone(),
            protocols: self.protocol.0.clone(),
            dscps: self.dscp.0.clone(),
            passengers: self.passenger.0.clone(),
            class: self.class,
        };
        let conditions = [
            rule.domains.is_empty(),
            rule.prefixes.is_empty(),
            rule.ports.is_empty(),
            rule.protocols.is_empty(),
            rule.dscps.is_empty(),
            rule.passengers.is_empty(),
        ];
        if conditions.iter().all(|empty| *empty) {
            return Err((
                "this rule matches everything",
                "write default-class at the top for what no rule matches, or give the rule a \
                 condition: domain, prefix, port, protocol, dscp or passenger",
            ));
        }
        if rule.class == Class::Operator && rule.prefixes.is_empty() && rule.passengers.is_empty() {
            return Err((
                "any passenger could get the operator's class by this rule",
                "say where the operator's traffic comes from or goes to: passenger = \
                 [\"10.9.0.0/24\"] or prefix = [\"192.0.2.0/24\"]",
            ));
        }
        Ok(rule)
    }
}

/// One value or a list. An empty list is an error, because it would match either nothing or
/// everything.
#[derive(Debug, Clone)]
struct Values<T>(Vec<T>);

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// A network or a single address.
#[derive(Debug, Clone)]
struct Net(IpNet);

impl FromStr for Net {
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

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for Values<T> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OneOrMany(PhantomData)).map(Self)
    }
}

struct OneOrMany<T>(PhantomData<T>);

impl<'de, T: FromStr<Err: Display>> Visitor<'de> for OneOrMany<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Vec<T>, E> {
        text.parse().map(|value| vec![value]).map_err(E::custom)
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Vec<T>, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(Values(one)) = list.next_element::<Values<T>>()? {
            values.extend(one);
            if values.len() > MAX_VALUES {
                return Err(serde::de::Error::custom(format!(
                    "one condition has at most {MAX_VALUES} values: write several rules"
                )));
            }
        }
        if values.is_empty() {
            return Err(serde::de::Error::custom("an empty list: leave the condition out"));
        }
        Ok(values)
    }
}
