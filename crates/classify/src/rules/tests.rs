use super::*;
use crate::Mac;

fn subject() -> Subject {
    Subject {
        address: Some("192.0.2.7".parse().unwrap()),
        port: 443,
        protocol: Protocol::Tcp,
        dscp: Dscp::DF,
        passenger: "10.0.0.7".parse().unwrap(),
        mac: None,
        named: Named::Unknown,
    }
}

fn gov() -> Rule {
    let domains = vec!["gov.uk".parse().unwrap()];
    Rule { domains, class: Class::Assured, ..Rule::default() }
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn rules(rules: Vec<Rule>) -> Rules {
    Rules { rules, default: Class::LowerEffort, ..Rules::default() }
}

#[test]
fn the_first_that_matches_wins() {
    let all = |class| Rule { class, ..Rule::default() };
    let rules = rules(vec![gov(), all(Class::BestEffort), all(Class::Network)]);
    let decision = rules.decide(&subject());
    assert_eq!((decision.class, decision.rule), (Class::BestEffort, Some(1)));
    let named = Named::Agreed(name("www.gov.uk"));
    let decision = rules.decide(&Subject { named, ..subject() });
    assert_eq!((decision.class, decision.rule, decision.claim), (Class::Assured, Some(0), None));
}

#[test]
fn a_name_alone_is_a_claim() {
    let named = Named::Claimed(name("www.gov.uk"));
    let subject = Subject { named, ..subject() };
    let decision = rules(vec![gov()]).decide(&subject);
    assert_eq!((decision.class, decision.rule), (Class::LowerEffort, None));
    let claim = Claim { name: name("www.gov.uk"), class: Class::Assured, rule: 0 };
    assert_eq!(decision.claim, Some(claim.clone()));
    // The next matching rule applies until the claim is verified.
    let https =
        Rule { ports: vec!["443".parse().unwrap()], class: Class::BestEffort, ..Rule::default() };
    let decision = rules(vec![gov(), https.clone()]).decide(&subject);
    assert_eq!(
        (decision.class, decision.rule, decision.claim),
        (Class::BestEffort, Some(1), Some(claim))
    );
    assert_eq!(rules(vec![https, gov()]).decide(&subject).claim, None, "it would not win");
    let same = Rule { class: Class::LowerEffort, ..gov() };
    assert_eq!(rules(vec![same]).decide(&subject).claim, None, "it would change nothing");
}

#[test]
fn an_address_with_other_names_too_says_nothing() {
    let rules = rules(vec![gov()]);
    let of = |names: &[&str]| {
        let named = Named::AnyOf(names.iter().map(|text| name(text)).collect());
        rules.decide(&Subject { named, ..subject() })
    };
    assert_eq!(of(&["a.gov.uk", "b.gov.uk"]).class, Class::Assured);
    assert_eq!(of(&["a.gov.uk", "shop.test"]).class, Class::LowerEffort);
    assert_eq!(of(&[]), rules.decide(&subject()));
    assert_eq!(of(&["a.gov.uk", "shop.test"]).claim, None);
}

#[test]
fn marks_count_where_they_are_trusted_and_no_rule_matches() {
    let https = Rule { ports: vec!["443".parse().unwrap()], ..gov() };
    let passengers = vec!["10.0.0.0/24".parse().unwrap()];
    let trusted = Trusted { passengers, highest: Class::Network };
    let rules = Rules { trusted, ..rules(vec![Rule { domains: vec![], ..https }]) };
    let of = |dscp: Dscp, port, passenger: &str| {
        let passenger = passenger.parse().unwrap();
        let decision = rules.decide(&Subject { dscp, port, passenger, ..subject() });
        (decision.class, decision.by_mark)
    };
    assert!(rules.ask_marks());
    assert_eq!(of(Dscp::EF, 80, "10.0.0.7"), (Class::Network, true));
    assert_eq!(of(Dscp::CS6, 80, "10.0.0.7"), (Class::Network, true), "within the highest");
    assert_eq!(of(Dscp::AF42, 80, "10.0.0.7"), (Class::Assured, true));
    assert_eq!(of(Dscp::DF, 80, "10.0.0.7"), (Class::LowerEffort, false), "asks for nothing");
    assert_eq!(of(Dscp::EF, 80, "10.0.1.7"), (Class::LowerEffort, false), "not trusted");
    assert_eq!(of(Dscp::EF, 443, "10.0.0.7"), (Class::Assured, false), "a rule comes first");
}

#[test]
fn every_condition_must_hold_and_the_first_that_does_not_is_named() {
    let rule = Rule {
        passengers: vec!["10.0.0.0/24".parse().unwrap(), "mac:02:00:00:00:00:01".parse().unwrap()],
        protocols: vec![Protocol::Udp, Protocol::Tcp],
        ports: vec!["80".parse().unwrap(), "440-450".parse().unwrap()],
        prefixes: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
        dscps: vec![Dscp::EF, Dscp::DF],
        ..gov()
    };
    let good = Subject { named: Named::Agreed(name("gov.uk")), ..subject() };
    assert_eq!(rule.matches(&good), Match::Yes);
    let mapped = Some("::ffff:192.0.2.9".parse().unwrap());
    assert_eq!(rule.matches(&Subject { address: mapped, ..good.clone() }), Match::Yes);
    let away = "10.0.1.7".parse().unwrap();
    let device = Subject { passenger: away, mac: Some(Mac([2, 0, 0, 0, 0, 1])), ..good.clone() };
    assert_eq!(rule.matches(&device), Match::Yes);
    for (wrong, condition) in [
        (Subject { passenger: away, ..good.clone() }, Condition::Passenger),
        (Subject { protocol: Protocol::Icmp, ..good.clone() }, Condition::Protocol),
        (Subject { port: 439, ..good.clone() }, Condition::Port),
        (
            Subject { address: Some("192.0.3.1".parse().unwrap()), ..good.clone() },
            Condition::Prefix,
        ),
        (Subject { address: None, ..good.clone() }, Condition::Prefix),
        (Subject { dscp: Dscp::AF42, ..good.clone() }, Condition::Dscp),
        (Subject { named: Named::Unknown, ..good.clone() }, Condition::Domain),
        (Subject { named: Named::Claimed(name("notgov.uk")), ..good }, Condition::Domain),
    ] {
        assert_eq!(rule.matches(&wrong), Match::No(condition));
    }
}
