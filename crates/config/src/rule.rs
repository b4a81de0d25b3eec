//! `[[rule]]` of `air.toml`: assigns a class to a flow.

use std::borrow::Cow;
use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;

use bentpipe_classify::{Domain, Ports, Protocol, Rule, Trusted, Who};
use bentpipe_schedule::{Class, Dscp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::{SeqAccess, Visitor};

use super::classes::ClassName;
use super::network::Network;
use super::{ConfigError, Placed, Source};

/// A protocol that a rule may name: those of flows, and those that `[raw]` knows by name.
#[derive(Clone, Copy)]
struct NamedProtocol(Protocol);

impl FromStr for NamedProtocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(number) = super::ip::number(text) {
            return Ok(Self(Protocol::from_number(number)));
        }
        text.parse()
            .map(Self)
            .map_err(|why: String| format!("{why}; these have names too: {}", super::ip::names()))
    }
}

/// Maximum number of rules in a file, because every new flow is compared with all of them.
pub const MAX_RULES: usize = 256;

/// Maximum number of values in one condition.
const MAX_VALUES: usize = 1024;

/// A rule. All its conditions must hold. A condition has one value or a list, of which any may
/// hold. A rule needs at least one condition.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RuleTable {
    /// Name for `bentpipe classify`.
    #[serde(default)]
    name: String,
    /// Names of the destination, each with all names below it.
    #[serde(default)]
    #[schemars(title = "names")]
    domain: Values<Domain>,
    /// Networks or addresses of the destination.
    #[serde(default)]
    #[schemars(title = "networks or addresses")]
    prefix: Values<Network>,
    /// Port of the destination.
    #[serde(default)]
    #[schemars(title = "numbers, `\"8000-8080\"`")]
    port: Values<Ports>,
    /// IP protocol.
    #[serde(default)]
    #[schemars(title = "`\"tcp\"`, `\"udp\"`, `\"icmp\"`, a name of `[raw]` or a number")]
    protocol: Values<NamedProtocol>,
    /// Mark of the passenger.
    #[serde(default)]
    #[schemars(title = "`\"EF\"`, `\"AF42\"`, a number")]
    dscp: Values<Dscp>,
    /// Networks, addresses or devices of the passenger.
    #[serde(default)]
    #[schemars(title = "networks, addresses, `\"mac:a4:83:e7:01:02:03\"`")]
    passenger: Values<Who>,
    /// Class of matching flows.
    class: ClassName,
}

/// Trusted passengers. If no rule matches, their marks determine the class.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct TrustedTable {
    /// Networks, addresses or devices (`mac:`).
    #[schemars(title = "one value, or a list")]
    passenger: Values<Who>,
    /// Most favoured class of their marks.
    #[serde(default = "network")]
    highest_class: ClassName,
}

const fn network() -> ClassName {
    ClassName(Class::Network)
}

impl TrustedTable {
    pub fn check(&self) -> Trusted {
        Trusted { passengers: self.passenger.0.clone(), highest: self.highest_class.0 }
    }
}

/// The rules of a file, checked.
pub(super) fn check(
    source: &Source<'_>,
    rules: &[Placed<RuleTable>],
) -> Result<Vec<Rule>, ConfigError> {
    if let Some(beyond) = rules.get(MAX_RULES) {
        let why = format!("there are {} rules", rules.len());
        let help = format!("{MAX_RULES} are allowed: put values of one class into one rule");
        return Err(beyond.error(source, why, help));
    }
    let check = |rule: &Placed<RuleTable>| {
        rule.check().map_err(|(why, help)| rule.error(source, why, help))
    };
    rules.iter().map(check).collect()
}

impl RuleTable {
    fn check(&self) -> Result<Rule, (&'static str, &'static str)> {
        let rule = Rule {
            name: self.name.clone(),
            domains: self.domain.0.clone(),
            prefixes: self.prefix.0.iter().map(|net| net.0).collect(),
            ports: self.port.0.clone(),
            protocols: self.protocol.0.iter().map(|named| named.0).collect(),
            dscps: self.dscp.0.clone(),
            passengers: self.passenger.0.clone(),
            class: self.class.0,
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
#[derive(Clone)]
struct Values<T>(Vec<T>);

impl<T> Default for Values<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> JsonSchema for Values<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "values".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one = ["string", "integer"];
        json_schema!({
            "anyOf": [
                { "type": one },
                { "type": "array", "items": { "type": one }, "minItems": 1, "maxItems": MAX_VALUES },
            ]
        })
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
