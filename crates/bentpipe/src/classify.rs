//! `bentpipe classify`: shows which rule applies to a flow, and why.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use bentpipe_classify::{Condition, Decision, Mac, Match, Named, Protocol, Rule, Subject};
use bentpipe_cli::out::{say, show};
use bentpipe_flow::{Host, Target};
use bentpipe_gateway::config::{AirConfig, Policy};
use bentpipe_schedule::{Class, Dscp};
use serde_json::{Value, json};

use crate::check::shares;
use crate::sheet::Sheet;

/// Flow to classify, and the configuration with the rules.
#[derive(clap::Args)]
pub struct Classify {
    /// Destination of the flow: a name or an address, and a port.
    #[arg(value_name = "HOST:PORT")]
    target: String,
    /// The air gateway's configuration; the key files that it names need not exist.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// Address that the name resolves to, for rules with prefixes.
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// Passenger of the flow: an address, or mac:a4:83:e7:01:02:03.
    #[arg(long, value_name = "WHO")]
    passenger: Option<String>,
    /// Classify a UDP flow instead of TCP.
    #[arg(long)]
    udp: bool,
    /// DSCP set by the passenger.
    #[arg(long, value_name = "DSCP", default_value = "DF")]
    dscp: Dscp,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Prints the decision of the rules.
pub fn run(classify: &Classify) -> Result<(), Box<dyn Error>> {
    let subject = classify.subject()?;
    let config = AirConfig::load_policy(&classify.config)?;
    let answer = Answer::new(classify, &config, subject);
    if classify.json {
        say!("{:#}", answer.json());
    } else {
        show!("{}", answer.text());
    }
    Ok(())
}

impl Classify {
    fn subject(&self) -> Result<Subject, String> {
        let target: Target = self.target.parse().map_err(|error| {
            format!(
                "{:?} is not a destination: {error}; write it like example.gov.uk:443",
                self.target
            )
        })?;
        let protocol = if self.udp { Protocol::Udp } else { Protocol::Tcp };
        let (address, named) = match &target.host {
            Host::Ip(address) => (Some(*address), Named::Unknown),
            Host::Service(_) => (None, Named::Unknown),
            Host::Name(name) => {
                let name = name.parse().map_err(|error| format!("{error}"))?;
                let named = match protocol {
                    Protocol::Tcp => Named::Claimed(name),
                    _ => Named::AnyOf(vec![name]),
                };
                (self.address, named)
            }
        };
        let (passenger, mac) = self.who()?;
        let dscp = self.dscp;
        Ok(Subject { address, port: target.port, protocol, dscp, passenger, mac, named })
    }

    /// Returns the address and device of the passenger. Without an address, the unspecified address
    /// is used.
    fn who(&self) -> Result<(IpAddr, Option<Mac>), String> {
        let nobody = Ipv4Addr::UNSPECIFIED.into();
        match self.passenger.as_deref() {
            None => Ok((nobody, None)),
            Some(who) => match who.strip_prefix("mac:") {
                Some(mac) => Ok((nobody, Some(mac.parse()?))),
                None => who.parse().map(|address| (address, None)).map_err(|_| {
                    format!(
                        "{who:?} is not a passenger: write an address, or mac:a4:83:e7:01:02:03"
                    )
                }),
            },
        }
    }
}

struct Answer<'a> {
    classify: &'a Classify,
    config: &'a Policy,
    subject: Subject,
    decision: Decision,
    matches: Vec<Match>,
}

impl<'a> Answer<'a> {
    fn new(classify: &'a Classify, config: &'a Policy, subject: Subject) -> Self {
        let (decision, matches) = (config.rules.decide(&subject), config.rules.explain(&subject));
        Self { classify, config, subject, decision, matches }
    }

    /// Class of the flow once its claim is verified, and the rule that assigns it.
    fn winner(&self) -> (Class, Option<usize>) {
        match &self.decision.claim {
            Some(claim) => (claim.class, Some(claim.rule)),
            None => (self.decision.class, self.decision.rule),
        }
    }

    fn text(&self) -> Sheet {
        let (class, rule) = self.winner();
        let mut sheet =
            Sheet::new(&format!("{} ({})", self.classify.target, self.subject.protocol));
        for (at, (rule, matches)) in self.config.rules.rules.iter().zip(&self.matches).enumerate() {
            let beyond = self.decision.rule.is_some_and(|winner| at > winner);
            let why = if beyond { "not asked".to_owned() } else { self.why(rule, *matches) };
            let name = if rule.name.is_empty() { String::new() } else { rule.name.clone() + ", " };
            sheet.row(&format!("rule {}", at + 1), format!("{name}{}: {why}", rule.class));
        }
        sheet.row("class", format!("{class}, by {}", self.by(rule)));
        if let Some(needs) = self.needs() {
            sheet.row("needs", needs);
        }
        if self.decision.claim.is_some() {
            let (class, by) = (self.decision.class, self.by(self.decision.rule));
            sheet.row("until then", format!("{class}, by {by}"));
        }
        sheet.row("marked", class.dscp());
        let config = self.config.classes.get(class).cloned().unwrap_or_default();
        sheet.row("up", shares(&config));
        sheet
    }

    /// Condition on the name that must be met for the winning rule.
    fn needs(&self) -> Option<&'static str> {
        if self.decision.claim.is_some() {
            return Some(
                "the name and the address must agree: they do where the client asks a proxy for \
                 the name, or our own resolver answered the address; else the ground resolves and \
                 compares",
            );
        }
        let rule = &self.config.rules.rules[self.decision.rule?];
        let by_name = !rule.domains.is_empty() && matches!(self.subject.named, Named::AnyOf(_));
        by_name.then_some("our own resolver answered the address for names of these domains only")
    }

    fn by(&self, rule: Option<usize>) -> String {
        match rule {
            Some(at) => format!("rule {}", label(at, &self.config.rules.rules[at])),
            None if self.decision.by_mark => "its mark, which is trusted".to_owned(),
            None => "default-class".to_owned(),
        }
    }

    fn why(&self, rule: &Rule, matches: Match) -> String {
        match matches {
            Match::Yes => "matches".to_owned(),
            Match::IfAgreed => "matches, if the name and the address agree".to_owned(),
            Match::No(condition) => {
                let wanted = values(rule, condition).join(", ");
                format!("no: {} is {}, not {wanted}", condition.name(), self.is(condition))
            }
        }
    }

    /// Value of the flow for `condition` of a rule.
    fn is(&self, condition: Condition) -> String {
        let subject = &self.subject;
        match condition {
            Condition::Passenger => match (&self.classify.passenger, subject.mac) {
                (None, _) => "not given (--passenger)".to_owned(),
                (_, Some(mac)) => format!("mac:{mac}"),
                (_, None) => subject.passenger.to_string(),
            },
            Condition::Protocol => subject.protocol.to_string(),
            Condition::Port => subject.port.to_string(),
            Condition::Prefix => match subject.address {
                Some(address) => address.to_string(),
                None => "not given (--address)".to_owned(),
            },
            Condition::Dscp => subject.dscp.to_string(),
            Condition::Domain => match &subject.named {
                Named::Claimed(name) | Named::Agreed(name) => name.to_string(),
                Named::AnyOf(names) => {
                    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                }
                Named::Unknown => "unknown".to_owned(),
            },
        }
    }

    fn json(&self) -> Value {
        let (class, rule) = self.winner();
        let rules = self.config.rules.rules.iter().zip(&self.matches).enumerate();
        let rules: Vec<Value> = rules
            .map(|(at, (rule, matches))| {
                json!({
                    "rule": at + 1,
                    "name": rule.name,
                    "class": rule.class.name(),
                    "matches": match matches {
                        Match::Yes => "yes",
                        Match::IfAgreed => "if-agreed",
                        Match::No(_) => "no",
                    },
                    "failed": match matches {
                        Match::No(condition) => Some(condition.name()),
                        _ => None,
                    },
                    "why": self.why(rule, *matches),
                })
            })
            .collect();
        let config = self.config.classes.get(class).cloned().unwrap_or_default();
        json!({
            "target": self.classify.target,
            "protocol": self.subject.protocol.to_string(),
            "class": class.name(),
            "rule": rule.map(|at| at + 1),
            "needs": self.needs(),
            "until_then": self.decision.claim.as_ref().map(|_| self.decision.class.name()),
            "dscp": class.dscp().to_string(),
            "rate_bps": config.rate().map(|rate| rate.bps()),
            "ceil_bps": config.ceil().map(|ceil| ceil.bps()),
            "rules": rules,
        })
    }
}

fn label(at: usize, rule: &Rule) -> String {
    if rule.name.is_empty() { (at + 1).to_string() } else { format!("{} {:?}", at + 1, rule.name) }
}

/// Values that `rule` requires for a condition, as written.
fn values(rule: &Rule, condition: Condition) -> Vec<String> {
    fn shown<T: ToString>(values: &[T]) -> Vec<String> {
        values.iter().map(T::to_string).collect()
    }
    match condition {
        Condition::Passenger => shown(&rule.passengers),
        Condition::Protocol => shown(&rule.protocols),
        Condition::Port => shown(&rule.ports),
        Condition::Prefix => shown(&rule.prefixes),
        Condition::Dscp => shown(&rule.dscps),
        Condition::Domain => shown(&rule.domains),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use std::path::Path;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        classify: Classify,
    }

    /// Decision of the Rural-PAWS rules for these arguments.
    fn answer(arguments: &[&str]) -> (String, Value) {
        let text = include_str!("../../../examples/rural-paws/air.toml");
        let config = AirConfig::parse_policy(Path::new("air.toml"), text).unwrap();
        let classify = Cli::parse_from([&["classify", "--config", "air.toml"], arguments].concat());
        let subject = classify.classify.subject().unwrap();
        let answer = Answer::new(&classify.classify, &config, subject);
        let text = answer.text().to_string();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // Joined into one line for searching.
        (text.split_whitespace().collect::<Vec<_>>().join(" "), answer.json())
    }

    #[test]
    fn a_name_wins_if_it_is_verified() {
        let (text, json) = answer(&["example.gov.uk:443"]);
        assert_eq!(
            (&json["class"], &json["until_then"], &json["dscp"]),
            (&json!("assured"), &json!("lower-effort"), &json!("AF42"))
        );
        assert_eq!(json["ceil_bps"], json!(4_000_000));
        assert!(text.contains("class assured, by rule 1"), "{text}");
        assert!(text.contains("the ground resolves and compares"), "{text}");
        assert!(text.contains("until then lower-effort, by default-class"), "{text}");
    }

    #[test]
    fn every_rule_says_why_it_does_not_match() {
        let (text, json) = answer(&["shop.test:80", "--passenger", "10.0.0.7"]);
        assert_eq!((&json["class"], &json["rule"]), (&json!("lower-effort"), &Value::Null));
        assert!(text.contains("no: domain is shop.test, not ac.uk, gov.uk"), "{text}");
        let rules = json["rules"].as_array().unwrap();
        assert!(rules.iter().all(|rule| rule["matches"] == "no"), "{rules:?}");
    }

    #[test]
    fn datagrams_go_by_what_the_resolver_answered() {
        let (text, json) = answer(&["www.nhs.uk:443", "--udp"]);
        assert_eq!((&json["class"], &json["until_then"]), (&json!("assured"), &Value::Null));
        assert!(text.contains("for names of these domains only"), "{text}");
    }

    #[test]
    fn an_invalid_query_error_says_what_to_write() {
        for (wrong, said) in [
            (&["example.gov.uk"][..], "write it like example.gov.uk:443"),
            (&["a.test:1", "--passenger", "bob"], "write an address"),
            (&["a.test:1", "--passenger", "mac:1"], "mac:a4:83"),
        ] {
            let arguments = [&["classify", "--config", "air.toml"], wrong].concat();
            let classify = Cli::parse_from(arguments).classify;
            let error = classify.subject().unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
