//! Tests of the page that documents the format, `docs/researchers.md`: its examples are links, and
//! its tables have the keys of the code.

use std::path::Path;

use bentpipe_channel::RawLink;
use serde::Deserialize;

/// A profile, or a part of one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Profile {
    #[serde(rename = "name")]
    _name: Option<String>,
    #[serde(rename = "about")]
    _about: Option<String>,
    link: RawLink,
    terrestrial: Option<RawLink>,
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/researchers.md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Fenced blocks of a page, as pairs of their language and their text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let fences: Vec<&str> = page.split("```").collect();
    let inside = fences.iter().skip(1).step_by(2);
    inside.filter_map(|block| block.split_once('\n')).collect()
}

/// Reason why a profile is refused. Every trace that it names has two lines.
fn refusal(text: &str) -> Option<String> {
    let profile: Profile = match toml::from_str(text) {
        Ok(profile) => profile,
        Err(error) => return Some(error.message().to_owned()),
    };
    let links = [Some(profile.link), profile.terrestrial];
    let checked = links.into_iter().flatten().map(|link| link.check(|_| Ok("1\n3\n".into())));
    checked.filter_map(Result::err).map(|error| error.to_string()).next()
}

#[test]
fn every_example_is_a_link_or_gets_the_error_below_it() {
    let page = page();
    let blocks = blocks(&page);
    let mut counts = (0, 0);
    for (place, (language, text)) in blocks.iter().enumerate() {
        match *language {
            "toml" => {
                counts.0 += 1;
                assert_eq!(refusal(text), None, "{text}");
            }
            "toml refused" => {
                counts.1 += 1;
                let (language, error) = blocks[place + 1];
                assert_eq!((language, refusal(text).as_deref()), ("text", Some(error.trim())));
            }
            _ => {}
        }
    }
    assert!(counts.0 >= 9 && counts.1 >= 3, "the page has {counts:?} examples");
}

/// Keys that the code accepts where `text` has the unknown key `nonsense`.
fn accepted(text: &str) -> Vec<String> {
    let error = toml::from_str::<Profile>(text).unwrap_err().message().to_owned();
    let (_, list) = error.split_once("expected").unwrap_or_else(|| panic!("{text}: {error}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Keys in the first table below a heading.
fn documented(page: &str, heading: &str) -> Vec<String> {
    let start = page.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("no {heading:?}"));
    let rest = page[start..].lines().skip(2).skip_while(|line| !line.starts_with('|'));
    let rows = rest.take_while(|line| line.starts_with('|')).skip(2);
    rows.filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect()
}

#[test]
fn the_tables_have_exactly_the_keys_of_the_code() {
    let page = page();
    let of = |inside: &str| accepted(&format!("[link.forward]\n{inside}"));
    let tables = [
        ("## A direction", of("nonsense = 1")),
        ("### Series", of("rate = { series = { steps = [], nonsense = 1 } }")),
        ("### Rate", of("rate = { nonsense = 1 }")),
        ("### Loss", of("loss = { nonsense = 1 }")),
        ("### Gilbert–Elliott", of("loss = { gilbert-elliott = { nonsense = 1 } }")),
        ("### Drawn loss", of("loss = { drawn = { nonsense = 1 } }")),
        ("### Jitter", of("jitter = { nonsense = 1 }")),
        ("### Outages", of("outages = { nonsense = 1 }")),
        ("#### Random outages", of("outages = { random = { nonsense = 1 } }")),
        ("### Policer", of("policer = { nonsense = 1 }")),
        ("### Shaper", of("shaper = { nonsense = 1 }")),
        ("### AQM", of("aqm = { nonsense = 1 }")),
        ("### Demand", of("demand = { nonsense = 1 }")),
    ];
    for (heading, mut keys) in tables {
        let mut written = documented(&page, heading);
        keys.sort_unstable();
        written.sort_unstable();
        assert!(!keys.is_empty(), "{heading}");
        assert_eq!(written, keys, "{heading}");
    }
}
