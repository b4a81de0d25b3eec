//! The list of the portal's content: one address a line.

use std::collections::BTreeSet;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bentpipe_classify::Name;
use bentpipe_prefetch::address::{Address, AddressError};
use bentpipe_webcache::{Key, Scheme};

/// Maximum size of a manifest, bytes: 256 for each address.
pub const MAX_BYTES: u64 = 1 << 20;

/// Maximum number of addresses.
pub const MAX_ADDRESSES: usize = 4096;

/// Content of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// Addresses to fetch, without duplicates, in order.
    pub addresses: Vec<Address>,
    /// Lines that are not such an address.
    pub wrong: Vec<Wrong>,
}

/// A line that is not an address to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Line number, counted from one.
    pub line: usize,
    /// Reason.
    pub why: WrongLine,
}

/// Reason why a line is not an address to fetch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongLine {
    /// No request can be made of it.
    #[error("{0}: write http://example.net/path")]
    Address(#[from] AddressError),
    /// An `https` address of a name without a certificate.
    #[error(
        "{0} is not a [[site]], and https addresses of other names cannot be stored; write http://, or make \
         the name a [[site]]"
    )]
    NoSite(String),
    /// A site on another port.
    #[error("a [[site]] answers only at port 443")]
    Port,
    /// Longer than a cache key may be.
    #[error("it is too long for the cache")]
    Long,
    /// Beyond the maximum number.
    #[error("there are more than {MAX_ADDRESSES} addresses")]
    Many,
}

/// Reason for which a manifest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// The file cannot be read.
    #[error("the manifest {} cannot be read: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// It names nothing to fetch. That does not mean that everything shall be released.
    #[error(
        "the manifest {} names nothing that could be fetched{}; to release all pinned objects, leave \
         [preload] out",
        file.display(), first(wrong)
    )]
    Empty {
        /// The file.
        file: PathBuf,
        /// Lines that are not such an address.
        wrong: Vec<Wrong>,
    },
    /// It is too long.
    #[error("the manifest {} is longer than {MAX_BYTES} bytes", file.display())]
    Long {
        /// The file.
        file: PathBuf,
    },
}

fn first(wrong: &[Wrong]) -> String {
    let first = wrong.first().map(|wrong| format!(": line {}: {}", wrong.line, wrong.why));
    first.unwrap_or_default()
}

impl Manifest {
    /// Reads `file`, which must name at least one address. `sites` are the names whose certificates the
    /// operator has.
    pub fn read(file: &Path, sites: &[Name]) -> Result<Self, ManifestError> {
        let unreadable = |source| ManifestError::Unreadable { file: file.to_owned(), source };
        let mut text = String::new();
        let opened = std::fs::File::open(file).map_err(unreadable)?;
        opened.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(unreadable)?;
        if text.len() as u64 > MAX_BYTES {
            return Err(ManifestError::Long { file: file.to_owned() });
        }
        let manifest = Self::parse(&text, sites);
        if manifest.addresses.is_empty() {
            return Err(ManifestError::Empty { file: file.to_owned(), wrong: manifest.wrong });
        }
        Ok(manifest)
    }

    /// Parses the text. Empty lines and lines that begin with `#` are comments.
    pub fn parse(text: &str, sites: &[Name]) -> Self {
        let mut manifest = Self::default();
        let mut known = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let read = address(line, sites);
            let read = read.and_then(|address| match manifest.addresses.len() {
                MAX_ADDRESSES => Err(WrongLine::Many),
                _ => Ok(address),
            });
            match read {
                Ok(address) if known.insert(address.clone()) => manifest.addresses.push(address),
                Ok(_) => {}
                Err(why) => {
                    let is_many = why == WrongLine::Many;
                    manifest.wrong.push(Wrong { line: number + 1, why });
                    if is_many {
                        break;
                    }
                }
            }
        }
        manifest
    }
}

/// Cache key of the object at `address`.
pub fn key_of(address: &Address) -> Option<Key> {
    let origin = address.origin();
    let scheme = if origin.is_secure { Scheme::Https } else { Scheme::Http };
    Key::new(scheme, &origin.host, origin.port, address.path_and_query())
}

fn address(line: &str, sites: &[Name]) -> Result<Address, WrongLine> {
    let address = Address::parse(line)?;
    if address.is_secure() {
        let is_site = |site: &Name| site.as_str().eq_ignore_ascii_case(address.host());
        if !sites.iter().any(is_site) {
            return Err(WrongLine::NoSite(address.host().to_owned()));
        }
        if address.origin().port != 443 {
            return Err(WrongLine::Port);
        }
    }
    if key_of(&address).is_none() {
        return Err(WrongLine::Long);
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sites() -> Vec<Name> {
        vec!["portal.example".parse().unwrap()]
    }

    fn parse(text: &str) -> Manifest {
        Manifest::parse(text, &sites())
    }

    #[test]
    fn addresses_stand_one_a_line() {
        let text = "# films\n\nhttp://Mirror.example/a b?c#d\r\n  https://portal.example/\n\
                    http://mirror.example:80/a%20b?c\nhttp://[2001:db8::1]:8080/x\n";
        let manifest = parse(text);
        let shown: Vec<_> = manifest.addresses.iter().map(Address::as_str).collect();
        let expected = [
            "http://mirror.example/a%20b?c",
            "https://portal.example/",
            "http://[2001:db8::1]:8080/x",
        ];
        assert_eq!((shown, manifest.wrong), (expected.to_vec(), vec![]));
    }

    #[test]
    fn the_wrong_lines_are_told_and_the_others_count() {
        let text = "https://other.example/\nhttp://user:x@a.example/\nportal\nhttp://a.example/\n\
                    https://portal.example:8443/\nftp://a.example/\n";
        let manifest = parse(text);
        let told: Vec<_> =
            manifest.wrong.iter().map(|wrong| format!("{}: {}", wrong.line, wrong.why)).collect();
        assert_eq!(told.len(), 5, "{told:#?}");
        for (told, part) in told.iter().zip([
            "1: other.example is not a [[site]]",
            "2: it has a username",
            "3: it is not an absolute URL",
            "5: a [[site]] answers only at port 443",
            "6: its scheme",
        ]) {
            assert!(told.starts_with(part), "{told}");
        }
        assert_eq!(manifest.addresses.len(), 1);
    }

    #[test]
    fn it_is_bounded() {
        let line = |n: usize| format!("http://a.example/{n}\n");
        let text: String = (0..MAX_ADDRESSES + 9).map(line).collect();
        let manifest = parse(&text);
        assert_eq!((manifest.addresses.len(), manifest.wrong.len()), (MAX_ADDRESSES, 1));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("manifest");
        std::fs::write(&file, vec![b'\n'; MAX_BYTES as usize + 1]).unwrap();
        assert!(matches!(Manifest::read(&file, &[]), Err(ManifestError::Long { .. })));
        assert!(Manifest::read(folder.path(), &[]).is_err());
    }

    #[test]
    fn one_that_names_nothing_is_not_taken_for_the_wish_to_have_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("manifest");
        for (text, why) in [
            ("", "names nothing that could be fetched; to release"),
            ("# films\n\n", "names nothing that could be fetched; to release"),
            ("# films\nportal\n", "names nothing that could be fetched: line 2: it is not"),
        ] {
            std::fs::write(&file, text).unwrap();
            let error = Manifest::read(&file, &sites()).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn preloaded_addresses_match_passengers_requests() {
        let key = |text: &str| key_of(&Address::parse(text).unwrap()).unwrap();
        assert_eq!(key("http://A.example").as_str(), "http://a.example:80/");
        assert_eq!(key("https://a.example/b?c").as_str(), "https://a.example:443/b?c");
        assert_eq!(key("http://[2001:db8::1]/").as_str(), "http://[2001:db8::1]:80/");
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_its_end(text in "(https?://|[a-z0-9.:/@#?%\\[\\] -]|\n){0,60}") {
            let manifest = parse(&text);
            prop_assert!(manifest.addresses.len() + manifest.wrong.len() <= text.lines().count());
            prop_assert!(manifest.addresses.iter().all(|address| key_of(address).is_some()));
        }
    }
}
