//! Recorded requests and responses.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri, header};
use rustls::pki_types::DnsName;

use super::relay::Origin;
use crate::emu;
use crate::site::archive::MAX_PATH_BYTES;
use crate::site::{
    Domain, Kind, MAX_DOMAINS, MAX_RESOURCES, MAX_SITE_BYTES, Recorded, Resource, Site,
};

/// Maximum URLs that are remembered, whatever the response: those of a page, and three times as
/// many that redirect, count visits, or do not exist.
const MAX_ASKED: usize = 4 * MAX_RESOURCES;

/// All requests in their order.
#[derive(Default)]
pub(super) struct Kept {
    asked: Vec<Asked>,
    places: HashMap<Name, usize>,
    /// Hosts with at least one stored response.
    hosts: HashSet<String>,
    resources: usize,
    bytes: u64,
    /// Responses for which there was no room, or whose host has no name.
    pub left_out: u64,
}

/// Host and path of a URL, without its scheme.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name {
    host: String,
    path: String,
}

struct Asked {
    name: Name,
    referer: Option<Name>,
    answer: Option<(Recorded, Kind)>,
}

/// No recorded response can be the document of a site.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no HTML was recorded, of {asked} requests: set the browser's proxy to the recorder's address \
     for http and https, empty its cache, and load the page"
)]
pub struct NothingKept {
    asked: usize,
}

impl Kept {
    /// Registers a request. Returns the place for its response, if the response may be stored.
    pub(super) fn asked<B>(&mut self, origin: &Origin, request: &Request<B>) -> Option<usize> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let is_fit = request.method() == Method::GET
            && origin.is_usual()
            && path.starts_with('/')
            && path.len() <= MAX_PATH_BYTES;
        let name = Name { host: origin.name.clone(), path: path.to_owned() };
        if !is_fit {
            return None;
        }
        // After a redirection to the same place with another scheme, or a retry, the response may
        // still be stored.
        if let Some(place) = self.places.get(&name) {
            return self.asked[*place].answer.is_none().then_some(*place);
        }
        // Archives contain only hosts with names.
        if self.asked.len() >= MAX_ASKED || DnsName::try_from(name.host.as_str()).is_err() {
            self.left_out += 1;
            return None;
        }
        let referer = text(request.headers(), &header::REFERER).and_then(|it| Name::of(&it));
        self.places.insert(name.clone(), self.asked.len());
        self.asked.push(Asked { name, referer, answer: None });
        Some(self.asked.len() - 1)
    }

    /// Stores the response for `place`, if allowed.
    pub(super) fn answered(&mut self, place: usize, answer: &Response<Bytes>) {
        let Some(asked) = self.asked.get_mut(place).filter(|asked| asked.answer.is_none()) else {
            return;
        };
        if answer.status() != StatusCode::OK {
            return;
        }
        let body = answer.body().clone();
        let host = &asked.name.host;
        let is_one_too_many = self.hosts.len() >= MAX_DOMAINS && !self.hosts.contains(host);
        let is_full = self.resources >= MAX_RESOURCES || is_one_too_many;
        if is_full || self.bytes + body.len() as u64 > MAX_SITE_BYTES {
            self.left_out += 1;
            return;
        }
        self.hosts.insert(host.clone());
        self.resources += 1;
        self.bytes += body.len() as u64;
        let content_type = text(answer.headers(), &header::CONTENT_TYPE)
            .unwrap_or_else(|| "application/octet-stream".to_owned());
        let kind = kind(&content_type);
        let content_encoding = text(answer.headers(), &header::CONTENT_ENCODING);
        asked.answer = Some((Recorded { body, content_type, content_encoding }, kind));
    }

    /// The recorded site: the first HTML response and everything after it.
    pub(super) fn site(&self, name: &str) -> Result<Site, NothingKept> {
        let whole = || self.asked.iter().filter_map(|it| Some((it, it.answer.as_ref()?)));
        let is_document = |(_, (_, kind)): &(&Asked, &(Recorded, Kind))| *kind == Kind::Document;
        let first = whole().position(|it| is_document(&it));
        let first = first.ok_or(NothingKept { asked: self.asked.len() })?;
        let mut site =
            Site { name: name.into(), visit: 0, domains: Vec::new(), resources: Vec::new() };
        let mut places = HashMap::new();
        for (asked, (recorded, kind)) in whole().skip(first) {
            let found = asked.referer.as_ref().and_then(|it| places.get(it)).copied();
            let is_first = site.resources.is_empty();
            places.insert(&asked.name, site.resources.len());
            let resource = Resource {
                domain: domain(&mut site, &asked.name.host),
                path: asked.name.path.clone(),
                bytes: recorded.body.len() as u64,
                kind: *kind,
                after: (!is_first).then_some(found.unwrap_or(0)),
                recorded: Some(recorded.clone()),
            };
            site.resources.push(resource);
        }
        Ok(site)
    }
}

/// Index of the domain with this name, which is added if it is new.
fn domain(site: &mut Site, name: &str) -> usize {
    let place = site.domains.iter().position(|it| it.name == name);
    place.unwrap_or_else(|| {
        let address = emu::site(site.domains.len() as u32 + 1).into();
        site.domains.push(Domain { name: name.to_owned(), address });
        site.domains.len() - 1
    })
}

impl Name {
    fn of(url: &str) -> Option<Self> {
        let url: Uri = url.split('#').next()?.parse().ok()?;
        let path = url.path_and_query().map_or("/", |path| path.as_str());
        Some(Self { host: url.host()?.to_ascii_lowercase(), path: path.to_owned() })
    }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

/// Kind of a media type to a browser.
fn kind(content_type: &str) -> Kind {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "text/html" | "application/xhtml+xml" => Kind::Document,
        "text/css" => Kind::Style,
        _ if essence.ends_with("/javascript") || essence.ends_with("/ecmascript") => Kind::Script,
        _ if essence.starts_with("image/") => Kind::Image,
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::super::relay::Scheme;
    use super::*;

    /// Registers a request with this response. Returns `true` if the response may be stored.
    fn pass(kept: &mut Kept, url: &str, status: u16, body: &str) -> bool {
        let request = Request::get(url).body(()).unwrap();
        let origin = Origin::of(request.uri(), Scheme::Http).unwrap();
        let Some(place) = kept.asked(&origin, &request) else { return false };
        let answer = Response::builder().status(status).header(header::CONTENT_TYPE, "text/html");
        kept.answered(place, &answer.body(Bytes::copy_from_slice(body.as_bytes())).unwrap());
        true
    }

    #[test]
    fn redirected_and_failed_objects_are_stored_if_they_arrive() {
        let mut kept = Kept::default();
        assert!(pass(&mut kept, "http://www.a.test/", 301, ""));
        assert!(pass(&mut kept, "http://www.a.test/", 503, "later"));
        assert!(kept.site("a").is_err());
        assert!(pass(&mut kept, "http://www.a.test/", 200, "<p>"));
        assert!(!pass(&mut kept, "http://www.a.test/", 200, "another"), "the first is kept");
        let site = kept.site("a").unwrap();
        assert_eq!((site.resources.len(), site.bytes(), kept.left_out), (1, 3, 0));
    }

    #[test]
    fn hosts_without_names_are_left_out_and_said() {
        let mut kept = Kept::default();
        assert!(pass(&mut kept, "http://www.a.test/", 200, "<p>"));
        assert!(!pass(&mut kept, "http://127.0.0.1/a", 200, "a"));
        assert!(!pass(&mut kept, "http://[::1]/a", 200, "a"));
        assert_eq!(kept.left_out, 2);
        let folder = tempfile::tempdir().unwrap();
        kept.site("a").unwrap().write(folder.path()).unwrap();
        Site::read(folder.path()).unwrap();
    }

    #[test]
    fn dropped_objects_take_no_domains() {
        let mut kept = Kept::default();
        for number in 0..2 * MAX_DOMAINS {
            pass(&mut kept, &format!("http://counter{number}.test/"), 204, "");
        }
        for number in 0..=MAX_DOMAINS {
            pass(&mut kept, &format!("http://www{number}.test/"), 200, "<p>");
        }
        assert_eq!(kept.site("a").unwrap().domains.len(), MAX_DOMAINS);
        assert_eq!(kept.left_out, 1);
    }
}
