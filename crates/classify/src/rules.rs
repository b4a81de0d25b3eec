//! The operator's rules. The first matching rule sets the class.

use bentpipe_schedule::{Class, Dscp};
use ipnet::IpNet;

use super::{Domain, EncryptedHello, Name, Named, Ports, Protocol, Subject, Who};

/// A rule. A flow matches if it matches at least one entry of every non-empty list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// Name in the log; may be empty.
    pub name: String,
    /// Domains of the destination.
    pub domains: Vec<Domain>,
    /// Networks of the destination address.
    pub prefixes: Vec<IpNet>,
    /// Destination ports.
    pub ports: Vec<Ports>,
    /// IP protocols.
    pub protocols: Vec<Protocol>,
    /// DSCPs set by the client.
    pub dscps: Vec<Dscp>,
    /// Passengers the rule applies to.
    pub passengers: Vec<Who>,
    /// Class of matching flows.
    pub class: Class,
}

/// All rules, and the class of flows that no rule matches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// Rules in order of evaluation.
    pub rules: Vec<Rule>,
    /// Class of flows that no rule matches.
    pub default: Class,
    /// Passengers whose marks decide the class if no rule matches.
    pub trusted: Trusted,
    /// Treatment of the name in a ClientHello that contains an encrypted one.
    pub encrypted_hello: EncryptedHello,
}

/// Passengers whose marks are honoured without a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trusted {
    /// The trusted passengers.
    pub passengers: Vec<Who>,
    /// Highest class that their marks can select.
    pub highest: Class,
}

/// Conditions of a rule, in order of evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// `passenger`.
    Passenger,
    /// `protocol`.
    Protocol,
    /// `port`.
    Port,
    /// `prefix`.
    Prefix,
    /// `dscp`.
    Dscp,
    /// `domain`.
    Domain,
}

/// Result of evaluating a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// All conditions are met.
    Yes,
    /// All conditions would be met if the client's stated name agreed with the address.
    IfAgreed,
    /// This condition is the first that is not met.
    No(Condition),
}

/// Decision about a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Class of the flow from its start.
    pub class: Class,
    /// Index of the matching rule; absent for the default class.
    pub rule: Option<usize>,
    /// `true` if a trusted mark determined the class.
    pub by_mark: bool,
    /// Claim that would change the class if verified.
    pub claim: Option<Claim>,
}

/// A name stated by a client, and the class of the flow if its address belongs to the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The stated name.
    pub name: Name,
    /// Class of the flow once verified.
    pub class: Class,
    /// Index of the rule that assigns the class.
    pub rule: usize,
}

impl Rules {
    /// Returns the class of `subject`, and the claim that could change it if verified.
    pub fn decide(&self, subject: &Subject) -> Decision {
        let mut claim = None;
        for (at, rule) in self.rules.iter().enumerate() {
            match rule.matches(subject) {
                Match::Yes => return Decision::new(rule.class, Some(at), claim),
                Match::IfAgreed if claim.is_none() => {
                    if let Named::Claimed(name) = &subject.named {
                        claim = Some(Claim { name: name.clone(), class: rule.class, rule: at });
                    }
                }
                Match::IfAgreed | Match::No(_) => {}
            }
        }
        let marked = self.trusted.class_of(subject);
        let decision = Decision::new(marked.unwrap_or(self.default), None, claim);
        Decision { by_mark: marked.is_some(), ..decision }
    }

    /// Returns the result of every rule, including those after the matching one.
    pub fn explain(&self, subject: &Subject) -> Vec<Match> {
        self.rules.iter().map(|rule| rule.matches(subject)).collect()
    }

    /// Returns `true` if any rule depends on a name, so that the gateway should wait for the first
    /// bytes.
    pub fn ask_names(&self) -> bool {
        self.rules.iter().any(|rule| !rule.domains.is_empty())
    }

    /// Returns `true` if any rule or trusted passenger depends on the client's device.
    pub fn ask_devices(&self) -> bool {
        let passengers = self.rules.iter().flat_map(|rule| &rule.passengers);
        let mut passengers = passengers.chain(&self.trusted.passengers);
        passengers.any(|who| matches!(who, Who::Mac(_)))
    }

    /// Returns `true` if any rule or trusted passenger depends on the client's marks.
    pub fn ask_marks(&self) -> bool {
        !self.trusted.passengers.is_empty() || self.rules.iter().any(|rule| !rule.dscps.is_empty())
    }
}

impl Decision {
    /// Discards a claim that would not change the class.
    fn new(class: Class, rule: Option<usize>, claim: Option<Claim>) -> Self {
        let claim = claim.filter(|claim| claim.class != class);
        Self { class, rule, by_mark: false, claim }
    }
}

impl Trusted {
    /// Class requested by the mark of `subject`, if its passenger is trusted.
    fn class_of(&self, subject: &Subject) -> Option<Class> {
        let class = Class::of_dscp(subject.dscp)?;
        let trusted = self.passengers.iter().any(|who| who.is(subject.passenger, subject.mac));
        trusted.then(|| class.max(self.highest)) // the highest class is the least value
    }
}

impl Rule {
    /// Evaluates the rule for `subject`.
    pub fn matches(&self, subject: &Subject) -> Match {
        use Condition::{Domain, Dscp, Passenger, Port, Prefix, Protocol};
        let address = subject.address.map(|address| address.to_canonical());
        let in_net = |net: &IpNet| address.is_some_and(|address| net.contains(&address));
        let checks = [
            (Passenger, any(&self.passengers, |who| who.is(subject.passenger, subject.mac))),
            (Protocol, any(&self.protocols, |protocol| *protocol == subject.protocol)),
            (Port, any(&self.ports, |ports| ports.0.contains(&subject.port))),
            (Prefix, any(&self.prefixes, in_net)),
            (Dscp, any(&self.dscps, |dscp| *dscp == subject.dscp)),
        ];
        if let Some((condition, _)) = checks.into_iter().find(|(_, holds)| !holds) {
            return Match::No(condition);
        }
        if self.domains.is_empty() {
            return Match::Yes;
        }
        let covers = |name: &Name| self.domains.iter().any(|domain| domain.covers(name));
        match &subject.named {
            Named::Agreed(name) if covers(name) => Match::Yes,
            Named::Claimed(name) if covers(name) => Match::IfAgreed,
            // All names must be covered, because the client may mean any of them.
            Named::AnyOf(names) if !names.is_empty() && names.iter().all(covers) => Match::Yes,
            _ => Match::No(Domain),
        }
    }
}

/// Returns `true` if one of `values` matches, or if the list is empty.
fn any<T>(values: &[T], holds: impl Fn(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(holds)
}

impl Condition {
    /// Name of the condition in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Passenger => "passenger",
            Self::Protocol => "protocol",
            Self::Port => "port",
            Self::Prefix => "prefix",
            Self::Dscp => "dscp",
            Self::Domain => "domain",
        }
    }
}

#[cfg(test)]
mod tests;
