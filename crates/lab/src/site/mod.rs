//! Site to load: a document and the objects that it leads to, on one domain or on many.
//!
//! A *page* is a document that names objects of one length, and nothing else: [`Site::page`]. A
//! *model* has the requests, bytes and domains of a published site ([`Site::model`]), an *archive* is
//! either kind or a recorded site ([`Recorder`]) in a folder ([`Site::read`]). [`SiteServer`] serves any of them over
//! HTTP/1.1, HTTP/2 and HTTP/3.
//!
//! Bodies that were not recorded follow from a rule: the same site, visit and path give the same
//! bytes anywhere, and the client checks every one of them. Documents, style sheets and scripts are
//! real ones, so that browsers and Split HTTP find the very objects that the graph of
//! [`Resource::after`] has.

mod archive;
mod authority;
#[cfg(test)]
mod chromium_tests;
mod content;
mod model;
mod record;
mod server;

use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use archive::{ArchiveError, MAX_BODY_BYTES, MAX_DOMAINS, MAX_RESOURCES, MAX_SITE_BYTES};
pub(crate) use authority::provider;
pub use authority::{Authority, AuthorityError};
pub use content::Content;
pub use model::{Shape, TooShort};
pub use record::{NothingKept, Recorder, RecorderSettings};
pub use server::{ServerSettings, SiteServer};

use crate::emu::SERVER;

/// Lifetime of a site's object in a cache: longer than any run. Documents are requested each time.
pub const KEEP: Duration = Duration::from_secs(3600);

/// A document and what it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// Name of the site.
    pub name: String,
    /// Number of the visit. Paths of different visits differ, so that no cache on the path has
    /// anything of them. Recorded paths never change.
    pub visit: u64,
    /// Domains of its resources.
    pub domains: Vec<Domain>,
    /// The document, then all others, each after the one that it is found in.
    pub resources: Vec<Resource>,
}

/// A name and the address that it alone has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    /// The name in URLs and certificates.
    pub name: String,
    /// Address of its server.
    pub address: IpAddr,
}

/// Something with a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// The place of its domain in [`Site::domains`].
    pub domain: usize,
    /// Its path below that of the visit, or all of its path and query where it was recorded.
    pub path: String,
    /// The length of its body.
    pub bytes: u64,
    /// Kind of the resource.
    pub kind: Kind,
    /// The place of the resource that it is found in, once that is complete; none for the document.
    pub after: Option<usize>,
    /// Its body where it was recorded; else it follows from the rule.
    pub recorded: Option<Recorded>,
}

/// A body that came from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The body as it crossed the network.
    pub body: bytes::Bytes,
    /// Its `Content-Type`.
    pub content_type: String,
    /// Its `Content-Encoding`, if it has one.
    pub content_encoding: Option<String>,
}

/// Kind of a resource to a browser.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// HTML.
    Document,
    /// CSS: names pictures.
    Style,
    /// JavaScript: names pictures and scripts, where nobody but a browser finds them.
    Script,
    /// A bitmap.
    Image,
    /// Anything else; nothing made by the rule names such a thing.
    Other,
}

/// Ports of a site's servers, at the address of each domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ports {
    /// HTTP/1.1 in clear.
    pub http: u16,
    /// HTTP/1.1 and HTTP/2 over TLS, and HTTP/3 over UDP.
    pub https: u16,
    /// HTTP/2 over TLS for all domains, whichever address it is asked at.
    pub proxy: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self { http: 80, https: 443, proxy: 8443 }
    }
}

impl Site {
    /// A page of `objects` objects of `bytes` bytes, all on one domain at the lab's server: a document
    /// that names them and nothing else, and the objects, which are found once the document is there.
    ///
    /// The document comes on top: 150 bytes and some 20 for each object, 11 KB for 500. A page of one
    /// object is two requests, one after the other.
    pub fn page(objects: u32, bytes: u64, visit: u64) -> Self {
        let objects = (objects as usize).min(MAX_RESOURCES - 1);
        let document = Resource::new(0, "/".into(), Kind::Document, None);
        let named = (0..objects).map(|number| Resource {
            bytes,
            ..Resource::new(0, format!("/{number}.bmp"), Kind::Image, Some(0))
        });
        let mut site = Self {
            name: format!("{objects}x{bytes}"),
            visit,
            domains: vec![Domain { name: "page.test".into(), address: SERVER.v4.into() }],
            resources: std::iter::once(document).chain(named).collect(),
        };
        site.resources[0].bytes = site.least_bytes(0);
        site
    }

    /// The same site for another visit.
    pub fn visited(&self, visit: u64) -> Self {
        Self { visit, ..self.clone() }
    }

    /// All bytes of all bodies.
    pub fn bytes(&self) -> u64 {
        self.resources.iter().map(|resource| resource.bytes).sum()
    }

    /// The names and addresses of its domains, as hosts files have them.
    pub fn hosts(&self) -> Vec<(String, IpAddr)> {
        self.domains.iter().map(|domain| (domain.name.clone(), domain.address)).collect()
    }

    /// The path and query that resource `number` is asked for by.
    pub fn path(&self, number: usize) -> String {
        let resource = &self.resources[number];
        match resource.recorded {
            Some(_) => resource.path.clone(),
            None => format!("/{:x}{}", self.visit, resource.path),
        }
    }

    /// The URL of resource `number` with this scheme, at the scheme's own port.
    pub fn url(&self, scheme: &str, number: usize) -> String {
        let domain = &self.domains[self.resources[number].domain];
        format!("{scheme}://{}{}", domain.name, self.path(number))
    }

    /// Content of resource `number`.
    pub fn content(&self, number: usize) -> Content {
        Content::of(self, number)
    }

    /// The resources that are found once `number` is complete.
    pub fn found_in(&self, number: usize) -> impl Iterator<Item = usize> + '_ {
        let after = move |(_, resource): &(usize, &Resource)| resource.after == Some(number);
        self.resources.iter().enumerate().filter(after).map(|(place, _)| place)
    }

    /// The fewest bytes that a resource made by the rule can have, in any visit.
    fn least_bytes(&self, number: usize) -> u64 {
        content::least_bytes(&self.visited(u64::MAX), number)
    }
}

impl Resource {
    fn new(domain: usize, path: String, kind: Kind, after: Option<usize>) -> Self {
        Self { domain, path, bytes: 0, kind, after, recorded: None }
    }

    /// For the `Content-Type`.
    pub fn content_type(&self) -> &str {
        match (&self.recorded, self.kind) {
            (Some(recorded), _) => &recorded.content_type,
            // One byte for each character: whatever fills them up is text.
            (None, Kind::Document) => "text/html; charset=windows-1252",
            (None, Kind::Style) => "text/css; charset=windows-1252",
            (None, Kind::Script) => "text/javascript; charset=windows-1252",
            (None, Kind::Image) => "image/bmp",
            (None, Kind::Other) => "application/octet-stream",
        }
    }
}
