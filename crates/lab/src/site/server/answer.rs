//! Responses to requests, for all versions of HTTP.

use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::{Body, Frame, SizeHint};

use crate::site::{Content, KEEP, Kind, Site};

/// Responses of a server, for all versions of HTTP.
pub trait Answer: Send + Sync + 'static {
    /// A body that is being sent.
    type Body: Body<Data = Bytes, Error: Send + Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Response to a request.
    fn answer<B>(&self, request: &Request<B>) -> Response<Self::Body>;
}

/// A site, indexed by name and path.
pub(super) struct Shelf {
    site: Site,
    domains: HashMap<String, usize>,
    /// Index of each resource by its domain and its path in the site.
    resources: HashMap<(usize, String), usize>,
}

/// A body that is being sent.
pub struct ContentBody {
    content: Option<Content>,
    offset: u64,
}

impl Shelf {
    pub(super) fn new(site: &Site) -> Self {
        let domains = site.domains.iter().enumerate();
        let resources = site.resources.iter().enumerate();
        Self {
            domains: domains.map(|(place, domain)| (domain.name.clone(), place)).collect(),
            resources: resources
                .map(|(place, resource)| ((resource.domain, resource.path.clone()), place))
                .collect(),
            site: site.clone(),
        }
    }

    /// Requested resource. Also the site with the paths of the requested visit, if that is not the
    /// site's own visit.
    fn find<B>(&self, request: &Request<B>) -> Option<(Option<Site>, usize)> {
        let host = match request.uri().authority() {
            Some(authority) => authority.as_str(),
            None => request.headers().get(header::HOST)?.to_str().ok()?,
        };
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let domain = *self.domains.get(&name.to_ascii_lowercase())?;
        let path = request.uri().path_and_query()?.as_str();
        let recorded = self.resources.get(&(domain, path.to_owned()));
        if let Some(number) = recorded.filter(|it| self.site.resources[**it].recorded.is_some()) {
            return Some((None, *number));
        }
        let (visit, rest) = path.strip_prefix('/')?.split_once('/')?;
        let visit = u64::from_str_radix(visit, 16).ok()?;
        let number = *self.resources.get(&(domain, format!("/{rest}")))?;
        let is_rule = self.site.resources[number].recorded.is_none();
        let site = (visit != self.site.visit).then(|| self.site.visited(visit));
        is_rule.then_some((site, number))
    }
}

impl Answer for Shelf {
    type Body = ContentBody;

    /// In HTTP/1.1 the name is in the `Host` header, otherwise in the authority.
    fn answer<B>(&self, request: &Request<B>) -> Response<ContentBody> {
        let mut response = Response::new(ContentBody { content: None, offset: 0 });
        if request.method() != Method::GET {
            *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
            return response;
        }
        let Some((site, number)) = self.find(request) else {
            *response.status_mut() = StatusCode::NOT_FOUND;
            return response;
        };
        let (site, resource) = (site.as_ref().unwrap_or(&self.site), &self.site.resources[number]);
        let headers = response.headers_mut();
        let mut put = |name, value: &str| {
            // An archive may contain any text; an invalid header value is left out.
            if let Ok(value) = HeaderValue::from_str(value) {
                headers.insert(name, value);
            }
        };
        put(header::CONTENT_TYPE, resource.content_type());
        if let Some(encoding) =
            resource.recorded.as_ref().and_then(|it| it.content_encoding.as_deref())
        {
            put(header::CONTENT_ENCODING, encoding);
        }
        match resource.kind {
            // A document is revalidated each time, as usual on the web.
            Kind::Document => put(header::CACHE_CONTROL, "no-cache"),
            _ => put(header::CACHE_CONTROL, &format!("public, max-age={}", KEEP.as_secs())),
        }
        // Browsers use fonts and modules of another domain only if CORS headers allow it.
        if let Some(origin) = request.headers().get(header::ORIGIN).and_then(|it| it.to_str().ok())
        {
            put(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            put(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
            put(header::VARY, "origin");
        }
        let content = site.content(number);
        put(header::CONTENT_LENGTH, &content.bytes().to_string());
        response.body_mut().content = Some(content);
        response
    }
}

impl ContentBody {
    /// The next bytes. `None` at the end.
    fn next(&mut self) -> Option<Bytes> {
        let slice = self.content.as_ref()?.slice(self.offset);
        self.offset += slice.len() as u64;
        (!slice.is_empty()).then_some(slice)
    }

    fn left(&self) -> u64 {
        self.content.as_ref().map_or(0, |content| content.bytes().saturating_sub(self.offset))
    }
}

impl Body for ContentBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|slice| Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}
