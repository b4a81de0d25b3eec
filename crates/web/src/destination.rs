//! Destination of a request, by name and by address.

use std::sync::Arc;

use bentpipe_flow::{Host, Target};
use http::HeaderValue;

use bentpipe_config::Site;

/// Port whose connections are inspected.
pub const PORT: u16 = 80;

/// Destination of a request.
#[derive(Debug, Clone)]
pub struct Destination {
    /// Name under which the response is stored and requested. Requests to the name reach its real
    /// server, because it is resolved on the ground, or is the address itself.
    pub named: Option<Target>,
    /// Address that the client dialled, if known: used for responses that are not stored.
    pub dialled: Option<Target>,
    /// Host field of the request.
    pub host: HeaderValue,
    /// Requested site, if TLS was terminated here.
    pub site: Option<Arc<Site>>,
}

impl Destination {
    /// Creates a destination by name. If `dialled` is known, requests whose responses are not
    /// stored go there. The origin receives the name as in the cache key: a client's own spelling
    /// could otherwise appear in everyone's response.
    pub fn by_name(mut named: Target, dialled: Option<Target>) -> Self {
        if let Host::Name(name) = &mut named.host {
            name.make_ascii_lowercase();
        }
        let shown = match &named.host {
            Host::Ip(std::net::IpAddr::V6(address)) => format!("[{address}]"),
            Host::Ip(address) => address.to_string(),
            Host::Name(name) => name.clone(),
            // No text parses as a service, so requests cannot name one.
            Host::Service(service) => service.name().to_owned(),
        };
        let shown = if named.port == PORT { shown } else { format!("{shown}:{}", named.port) };
        let host = HeaderValue::from_str(&shown).expect("names and addresses are ASCII");
        Self { named: Some(named), dialled, host, site: None }
    }
}

/// Parses the host in `text`; a final dot is ignored (RFC 3986 §3.2.2, RFC 1034 §3.1).
pub fn host_of(text: &str) -> Option<Host> {
    text.strip_suffix('.').unwrap_or(text).parse().ok()
}
