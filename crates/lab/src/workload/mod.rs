//! Workloads of the lab: objects, pages and bulk, with the origin that serves them and the client
//! that requests them.

pub mod bulk;
pub mod call;
pub mod client;
pub mod content;
pub mod levels;
pub mod origin;
pub mod page;
pub mod secure;

use std::fmt;
use std::str::FromStr;

/// Maximum objects of a page. With more, a browser would take minutes over any profile.
const MAX_PAGE_OBJECTS: usize = 200;

/// Workload of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Workload {
    /// One object on a new connection, for example `object-10k` or `file-1600k`. The time runs from
    /// before the connection is opened to the last byte.
    Object {
        /// Name as the user wrote it.
        name: String,
        /// Length of the object.
        bytes: u64,
    },
    /// A page with this many inline objects, for example `page-25`.
    Page {
        /// Number of objects.
        objects: usize,
    },
    /// The same page in a real browser, for example `chromium-25`.
    Chromium {
        /// Number of objects.
        objects: usize,
    },
    /// A long download, for its rate in steady state.
    Bulk,
}

/// No workload has this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is no workload {0:?}: write object-SIZE or file-SIZE (object-10k, file-1600k, \
     object-1m), page-N for a page of 1 to {MAX_PAGE_OBJECTS} objects (page-25), chromium-N \
     for the same in a real browser, or bulk"
)]
pub struct UnknownWorkload(String);

impl Workload {
    /// Workloads of the demo.
    pub fn demo() -> Vec<Self> {
        ["object-10k", "object-100k", "object-1m", "file-1600k", "page-25", "bulk"]
            .map(|name| name.parse().expect("its own names parse"))
            .to_vec()
    }

    /// Total bytes that must arrive. `None` if the workload has no end.
    pub fn bytes(&self) -> Option<u64> {
        match self {
            Self::Object { bytes, .. } => Some(*bytes),
            Self::Page { objects } | Self::Chromium { objects } => {
                Some(content::page_bytes(*objects))
            }
            Self::Bulk => None,
        }
    }

    /// Name of the metric.
    pub fn metric(&self) -> &'static str {
        match self {
            Self::Object { .. } => "completion",
            Self::Page { .. } | Self::Chromium { .. } => "plt",
            Self::Bulk => "goodput",
        }
    }

    /// Title for display.
    pub fn title(&self) -> String {
        match self {
            Self::Object { name, bytes } => {
                let kind = name.split('-').next().unwrap_or("object");
                match bytes {
                    1_048_576.. if bytes % (1 << 20) == 0 => format!("{} MiB {kind}", bytes >> 20),
                    1_000_000.. if bytes % 100_000 == 0 => {
                        format!("{} MB {kind}", *bytes as f64 / 1e6)
                    }
                    1_000.. if bytes % 1_000 == 0 => format!("{} KB {kind}", bytes / 1000),
                    _ => format!("{bytes} B {kind}"),
                }
            }
            Self::Page { objects } => format!("{objects}-object page"),
            Self::Chromium { .. } => "page in Chromium".into(),
            Self::Bulk => "bulk".into(),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object { name, .. } => f.pad(name),
            Self::Page { objects } => f.pad(&format!("page-{objects}")),
            Self::Chromium { objects } => f.pad(&format!("chromium-{objects}")),
            Self::Bulk => f.pad("bulk"),
        }
    }
}

impl FromStr for Workload {
    type Err = UnknownWorkload;

    fn from_str(text: &str) -> Result<Self, UnknownWorkload> {
        let unknown = || UnknownWorkload(text.into());
        match text.split_once('-') {
            None if text == "bulk" => Ok(Self::Bulk),
            Some(("object" | "file", size)) => {
                let bytes = size_bytes(size).ok_or_else(unknown)?;
                Ok(Self::Object { name: text.into(), bytes })
            }
            Some((kind @ ("page" | "chromium"), objects)) => match objects.parse() {
                Ok(objects) if !(1..=MAX_PAGE_OBJECTS).contains(&objects) => Err(unknown()),
                Ok(objects) if kind == "page" => Ok(Self::Page { objects }),
                Ok(objects) => Ok(Self::Chromium { objects }),
                Err(_) => Err(unknown()),
            },
            _ => Err(unknown()),
        }
    }
}

/// Parses a size: `10k` is 10,000, `1m` a million, `10mib` ten times 1,048,576.
fn size_bytes(text: &str) -> Option<u64> {
    let units = [("mib", 1 << 20), ("k", 1_000), ("m", 1_000_000), ("", 1)];
    let (digits, unit) = (units.into_iter())
        .find_map(|(name, unit)| text.strip_suffix(name).map(|digits| (digits, unit)))?;
    let number: u64 = digits.parse().ok().filter(|number| *number > 0)?;
    number.checked_mul(unit).filter(|bytes| *bytes < content::ENDLESS_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for name in
            ["object-10k", "object-1m", "file-1600k", "object-77", "page-25", "chromium-9", "bulk"]
        {
            let workload: Workload = name.parse().unwrap();
            assert_eq!(workload.to_string(), name);
        }
        let bytes = |name: &str| name.parse::<Workload>().unwrap().bytes();
        assert_eq!(bytes("file-1600k"), Some(1_600_000));
        assert_eq!(bytes("file-10mib"), Some(10_485_760));
        assert_eq!(bytes("bulk"), None);
        let title = |name: &str| name.parse::<Workload>().unwrap().title();
        assert_eq!(title("object-10k"), "10 KB object");
        assert_eq!(title("object-1m"), "1 MB object");
        assert_eq!(title("file-1600k"), "1.6 MB file");
        assert_eq!(title("file-10mib"), "10 MiB file");
    }

    #[test]
    fn a_wrong_name_says_what_to_write() {
        for name in ["object", "object-", "object-0", "object-10g", "page-0", "page-1000", "video"]
        {
            let error = name.parse::<Workload>().unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("page-25"), "{error}");
        }
    }
}
