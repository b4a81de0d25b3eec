//! What is kept of what passed.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri, header};

use super::relay::Origin;
use crate::emu;
use crate::site::archive::MAX_PATH_BYTES;
use crate::site::{
    Domain, Kind, MAX_DOMAINS, MAX_RESOURCES, MAX_SITE_BYTES, Recorded, Resource, Site,
};

/// All that was asked for, in that order.
#[derive(Default)]
pub(super) struct Kept {
    asked: Vec<Asked>,
    places: HashMap<Name, usize>,
    hosts: HashSet<String>,
    bytes: u64,
    /// Answers for which there was no room.
    pub left_out: u64,
}

/// What a URL names, whatever its scheme.
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

/// Nothing that was recorded can be the document of a site.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no HTML was recorded, of {asked} requests: set the browser's proxy to the recorder's address \
     for http and https, empty its cache, and load the page"
)]
pub struct NothingKept {
    asked: usize,
}

impl Kept {
    /// Something is asked for: where its answer will be kept, if it may be.
    pub(super) fn asked<B>(&mut self, origin: &Origin, request: &Request<B>) -> Option<usize> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let is_fit = request.method() == Method::GET
            && origin.is_usual()
            && path.starts_with('/')
            && path.len() <= MAX_PATH_BYTES;
        let name = Name { host: origin.name.clone(), path: path.to_owned() };
        if !is_fit || self.places.contains_key(&name) {
            return None;
        }
        let is_one_too_many = self.hosts.len() >= MAX_DOMAINS && !self.hosts.contains(&name.host);
        if self.asked.len() >= MAX_RESOURCES || is_one_too_many {
            self.left_out += 1;
            return None;
        }
        let referer = text(request.headers(), &header::REFERER).and_then(|it| Name::of(&it));
        self.hosts.insert(name.host.clone());
        self.places.insert(name.clone(), self.asked.len());
        self.asked.push(Asked { name, referer, answer: None });
        Some(self.asked.len() - 1)
    }

    /// Its answer is here.
    pub(super) fn answered(&mut self, place: usize, answer: &Response<Bytes>) {
        if answer.status() != StatusCode::OK {
            return;
        }
        let body = answer.body().clone();
        if self.bytes + body.len() as u64 > MAX_SITE_BYTES {
            self.left_out += 1;
            return;
        }
        self.bytes += body.len() as u64;
        let content_type = text(answer.headers(), &header::CONTENT_TYPE)
            .unwrap_or_else(|| "application/octet-stream".to_owned());
        let kind = kind(&content_type);
        let content_encoding = text(answer.headers(), &header::CONTENT_ENCODING);
        if let Some(asked) = self.asked.get_mut(place) {
            asked.answer = Some((Recorded { body, content_type, content_encoding }, kind));
        }
    }

    /// The site that was recorded: the first HTML and what followed it.
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

/// The place of the domain of this name, which is added if it is new.
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

/// What a browser makes of a media type.
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
