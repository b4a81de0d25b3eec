//! The join line: everything that an air gateway needs to reach and trust its ground, as one URI.
//!
//! ```text
//! bentpipe://ground.example.net:4500/boat-1?v=1&until=1795800000&ground=KEY&key=KEY
//! ```
//!
//! The keys are in URL-safe base64 (RFC 4648, section 5) without padding: the ground's public key
//! and the aircraft's private key.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_flow::Target;
use bentpipe_link::{PublicKey, SecretKey};
use url::Url;

const SCHEME: &str = "bentpipe";

/// Version of the line's format.
const VERSION: &str = "1";

/// Maximum length of a line: a name of 253 bytes as host, one of 64 for the aircraft, two keys of 43
/// characters, and the rest, twice over.
const MAX_BYTES: usize = 1024;

/// Maximum length of an aircraft's name in a line.
const MAX_NAME_BYTES: usize = 64;

/// Length of a key without padding.
const KEY_CHARACTERS: usize = 43;

/// A join line.
#[derive(Debug, PartialEq, Eq)]
pub struct JoinLine {
    /// Address of the ground.
    pub ground: Target,
    /// Public key of the ground.
    pub ground_key: PublicKey,
    /// Name of the aircraft.
    pub name: String,
    /// Private key of the aircraft.
    pub key: SecretKey,
    /// End of its validity.
    pub until: SystemTime,
}

/// Reason why a text is not a join line. The text may hold a key, so it is never repeated.
#[derive(Debug, PartialEq, Eq)]
pub struct NotJoinLine(String);

impl fmt::Display for NotJoinLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(why) = self;
        write!(
            f,
            "this is not a join line: {why}\n\
             copy the whole line that `bentpipe init ground --name NAME` printed, between single quotes"
        )
    }
}

impl std::error::Error for NotJoinLine {}

/// Returns an error if `name` cannot be the name of an aircraft in a join line.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_good) {
        return Ok(());
    }
    Err(format!(
        "{name:?} cannot be the name of an aircraft here: write 1 to {MAX_NAME_BYTES} letters, digits, \
         dots, hyphens or underscores"
    ))
}

impl fmt::Display for JoinLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ground, ground_key, name, key, until } = self;
        let until = until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let [ground_key, key] = [ground_key.to_string(), key.to_base64()].map(to_url_safe);
        write!(
            f,
            "{SCHEME}://{ground}/{name}?v={VERSION}&until={until}&ground={ground_key}&key={key}"
        )
    }
}

impl FromStr for JoinLine {
    type Err = NotJoinLine;

    fn from_str(text: &str) -> Result<Self, NotJoinLine> {
        let fail = |why: &str| NotJoinLine(why.to_owned());
        let text = text.trim();
        if text.len() > MAX_BYTES {
            return Err(fail("it is too long"));
        }
        let url = Url::parse(text).map_err(|_| fail("it is not a URI"))?;
        if url.scheme() != SCHEME {
            return Err(fail("it does not begin with bentpipe://"));
        }
        let part = |name: &str| {
            let mut values = url.query_pairs().filter(|(key, _)| key == name);
            let value = values.next().map(|(_, value)| value.into_owned());
            value.ok_or_else(|| NotJoinLine(format!("its part {name:?} is missing")))
        };
        if part("v")? != VERSION {
            return Err(fail(
                "another version of Bentpipe made it: install the same on both hosts",
            ));
        }
        let (host, port) = (url.host_str().unwrap_or_default(), url.port().unwrap_or_default());
        let ground: Target =
            format!("{host}:{port}").parse().map_err(|_| fail("it has no address and port"))?;
        if port == 0 {
            return Err(fail("it has no address and port"));
        }
        let name = url.path().strip_prefix('/').unwrap_or_default().to_owned();
        check_name(&name).map_err(NotJoinLine)?;
        let until = part("until")?.parse().ok().map(Duration::from_secs);
        let until = until.and_then(|since| UNIX_EPOCH.checked_add(since));
        Ok(Self {
            ground,
            ground_key: parsed(&part("ground")?)
                .ok_or_else(|| fail("the ground's key is damaged"))?,
            name,
            key: parsed(&part("key")?).ok_or_else(|| fail("the aircraft's key is damaged"))?,
            until: until.ok_or_else(|| fail("its time is damaged"))?,
        })
    }
}

fn to_url_safe(base64: String) -> String {
    base64.replace('+', "-").replace('/', "_").trim_end_matches('=').to_owned()
}

fn parsed<K: FromStr>(url_safe: &str) -> Option<K> {
    let is_whole = url_safe.len() == KEY_CHARACTERS;
    is_whole.then(|| url_safe.replace('-', "+").replace('_', "/") + "=")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(ground: &str) -> JoinLine {
        JoinLine {
            ground: ground.parse().unwrap(),
            ground_key: SecretKey::from_bytes([7; 32]).public(),
            name: "boat-1".to_owned(),
            key: SecretKey::from_bytes([0xfb; 32]),
            until: UNIX_EPOCH + Duration::from_secs(1_795_800_000),
        }
    }

    #[test]
    fn a_line_says_what_it_was_made_of() {
        for ground in ["ground.example.net:4500", "192.0.2.7:4501", "[2001:db8::7]:4500"] {
            let text = line(ground).to_string();
            assert!(text.starts_with(&format!("bentpipe://{ground}/boat-1?v=1&until=1795800000&")));
            assert!(!text.contains(['+', '\'', ' ']), "{text}");
            assert_eq!(format!(" {text}\n").parse(), Ok(line(ground)));
        }
    }

    #[test]
    fn a_damaged_line_says_what_is_wrong_and_repeats_no_key() {
        let whole = line("ground.example.net:4500").to_string();
        let without = |part: &str| whole.replace(part, "");
        for (text, why) in [
            (whole[..whole.len() - 1].to_owned(), "the aircraft's key is damaged"),
            (whole[..whole.find("&key").unwrap()].to_owned(), "its part \"key\" is missing"),
            (without("v=1"), "its part \"v\" is missing"),
            (whole.replace("v=1", "v=2"), "another version"),
            (without(":4500"), "no address and port"),
            (whole.replace(":4500", ":0"), "no address and port"),
            (without("boat-1"), "\"\" cannot be the name"),
            (whole.replace("boat-1", "boat%221"), "cannot be the name"),
            (whole.replace("until=1", "until=-1"), "its time is damaged"),
            (whole.replace("until=1", "until=99999999999999999999"), "its time is damaged"),
            (whole.replace("bentpipe:", "https:"), "does not begin with bentpipe://"),
            ("boat-1".to_owned(), "it is not a URI"),
            (whole.clone() + &"x".repeat(MAX_BYTES), "too long"),
        ] {
            let said = text.parse::<JoinLine>().unwrap_err().to_string();
            assert!(said.contains(why), "{why}: {said}");
            assert!(!said.contains("-_v7"), "{said}");
        }
    }

    #[test]
    fn names_are_plain() {
        for name in ["", "a b", "é", "a/b", "a\"", &"a".repeat(MAX_NAME_BYTES + 1)] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        assert!(check_name("D-ABCD_1.x").is_ok());
    }
}
