//! The operator's rules, in order: the first that matches says the class.

use bentpipe_schedule::{Class, Dscp};
use ipnet::IpNet;

use super::{Domain, Name, Named, Ports, Protocol, Subject, Who};

/// Rule: a flow matches if it has some entry of every list that is not empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rule {
    /// Name in the log; may be empty.
    pub name: String,
    /// In one of these domains.
    pub domains: Vec<Domain>,
    /// To an address in one of these networks.
    pub prefixes: Vec<IpNet>,
    /// To one of these ports.
    pub ports: Vec<Ports>,
    /// Protocols.
    pub protocols: Vec<Protocol>,
    /// Marked with one of these code points by the client.
    pub dscps: Vec<Dscp>,
    /// Passengers.
    pub passengers: Vec<Who>,
    /// The class of what matches.
    pub class: Class,
}

/// All rules, and the class of what none matches.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rules {
    /// In the order in which they are asked.
    pub rules: Vec<Rule>,
    /// For what no rule matches.
    pub default: Class,
    /// Sources whose marks decide the class if no rule matches.
    pub trusted: Trusted,
    /// Treatment of the name in a ClientHello with an encrypted part.
    pub encrypted_hello: EncryptedHello,
}

/// Passengers whose marks count without a rule.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trusted {
    /// These.
    pub passengers: Vec<Who>,
    /// The most favoured class that their marks lead to.
    pub highest: Class,
}

/// Value of the visible name in a ClientHello with an encrypted one inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EncryptedHello {
    /// Nothing: the flow has no name.
    #[default]
    Unknown,
    /// As much as in any other hello: it must agree with the address too.
    OuterName,
}

/// A condition that a rule may have, in the order in which they are asked.
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

/// Answer of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Match {
    /// All conditions hold.
    Yes,
    /// They would, if the name that the client says and the address agreed.
    IfAgreed,
    /// This one is the first that does not hold.
    No(Condition),
}

/// Decision of the rules about a flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The flow's class, from the start.
    pub class: Class,
    /// The rule that says so, by its place; the default class has none.
    pub rule: Option<usize>,
    /// `true` if a trusted mark decided.
    pub by_mark: bool,
    /// Claim that would give it another class if it were true.
    pub claim: Option<Claim>,
}

/// A name that a client says, and the class that the flow has if its address is the name's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// The name.
    pub name: Name,
    /// The class.
    pub class: Class,
    /// The rule that says so, by its place.
    pub rule: usize,
}

impl Rules {
    /// The class of `subject`, and what could be verified to give it a better one.
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

    /// Answer of every rule, including those after the winner.
    pub fn explain(&self, subject: &Subject) -> Vec<Match> {
        self.rules.iter().map(|rule| rule.matches(subject)).collect()
    }

    /// Returns `true` if any rule asks for a name, so that first bytes are worth waiting for.
    pub fn ask_names(&self) -> bool {
        self.rules.iter().any(|rule| !rule.domains.is_empty())
    }

    /// Returns `true` if anything asks for the client's device.
    pub fn ask_devices(&self) -> bool {
        let passengers = self.rules.iter().flat_map(|rule| &rule.passengers);
        let mut passengers = passengers.chain(&self.trusted.passengers);
        passengers.any(|who| matches!(who, Who::Mac(_)))
    }

    /// Returns `true` if anything asks for the client's marks.
    pub fn ask_marks(&self) -> bool {
        !self.trusted.passengers.is_empty() || self.rules.iter().any(|rule| !rule.dscps.is_empty())
    }
}

impl Decision {
    /// A claim that would change nothing is none.
    fn new(class: Class, rule: Option<usize>, claim: Option<Claim>) -> Self {
        let claim = claim.filter(|claim| claim.class != class);
        Self { class, rule, by_mark: false, claim }
    }
}

impl Trusted {
    /// The class that the mark of `subject` asks for, if it counts.
    fn class_of(&self, subject: &Subject) -> Option<Class> {
        let class = Class::of_dscp(subject.dscp)?;
        let trusted = self.passengers.iter().any(|who| who.is(subject.passenger, subject.mac));
        trusted.then(|| class.max(self.highest)) // the most favoured is the least
    }
}

impl Rule {
    /// Match with `subject`.
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
            // One that is not covered may be the one that the client means.
            Named::AnyOf(names) if !names.is_empty() && names.iter().all(covers) => Match::Yes,
            _ => Match::No(Domain),
        }
    }
}

/// Returns `true` if one of `values` will do; an empty list asks for nothing.
fn any<T>(values: &[T], holds: impl Fn(&T) -> bool) -> bool {
    values.is_empty() || values.iter().any(holds)
}

impl Condition {
    /// Its name in the config.
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
