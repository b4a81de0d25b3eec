//! One request and its response, on any connection.

use bytes::{Buf, Bytes};
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;

use super::Protocol;
use super::connect::{Connection, Dialer, Sender};
use super::protocol::Version;
use super::tally::Handshake;
use crate::site::Kind;

/// Filler of a header: letters, which compress as little as a cookie.
const FILLING: &[u8] = b"nV7kQx2mZp9LrTw4HsBy6DcJfG8aEuXo5KvNi3RtWq1YhMzUlAPe0CjSdObIgF";

/// Maximum size of a generated header. Servers accept 64 KiB, some only 8.
const MAX_HEADER_BYTES: usize = 16 << 10;

/// A resource to be requested.
#[derive(Debug, Clone, Copy)]
pub(super) struct Job {
    /// Index in the site.
    pub place: usize,
}

/// Sends requests, and records their responses.
pub(super) struct Asking<'a> {
    pub dialer: &'a Dialer,
    pub connection: usize,
    pub made: Option<Handshake>,
}

enum Body {
    Hyper(Incoming),
    Http3(Box<h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>>),
}

type Error = Box<dyn std::error::Error + Send + Sync>;

impl Job {
    pub(super) fn new(place: usize) -> Self {
        Self { place }
    }
}

impl Connection {
    /// Requests a resource and verifies the complete response. A failure is recorded too.
    pub(super) async fn fetch(&mut self, dialer: &Dialer, job: Job) -> Result<(), String> {
        let asking = Asking { dialer, connection: self.number, made: self.made.take() };
        asking.fetch(&mut self.sender, job).await
    }
}

impl Asking<'_> {
    /// Like [`Connection::fetch`].
    pub(super) async fn fetch(&self, sender: &mut Sender, job: Job) -> Result<(), String> {
        let tally = &self.dialer.tally;
        tally.begun(job.place, self.connection, self.made);
        let done = self.run(sender, job.place).await.map_err(|error| told(&*error));
        match &done {
            Ok(()) => tally.ended(job.place),
            Err(why) => tally.failed(job.place, why.clone()),
        }
        done
    }

    async fn run(&self, sender: &mut Sender, place: usize) -> Result<(), Error> {
        let (tally, content) = (&self.dialer.tally, self.dialer.content(place));
        let (status, mut body) = self.ask(sender, place).await?;
        tally.head(place, status.as_u16());
        if status != StatusCode::OK {
            return Err(format!("the server answered {status}").into());
        }
        let mut offset = 0;
        while let Some(data) = body.next().await? {
            if !content.matches(offset, &data) {
                return Err(format!("damaged within {} bytes from {offset}", data.len()).into());
            }
            offset += data.len() as u64;
            tally.received(place, self.connection, data.len());
        }
        if offset != content.bytes() {
            return Err(format!("ended at {offset} of {} bytes", content.bytes()).into());
        }
        Ok(())
    }

    async fn ask(&self, sender: &mut Sender, place: usize) -> Result<(StatusCode, Body), Error> {
        let request = request(self.dialer, place)?;
        let tally = &self.dialer.tally;
        let response = match sender {
            Sender::Http1(sender) => {
                sender.ready().await?;
                let response = sender.send_request(request.map(|()| Empty::new()));
                tally.sent(place);
                response.await?
            }
            Sender::Http2(sender) => {
                sender.ready().await?;
                let response = sender.send_request(request.map(|()| Empty::new()));
                tally.sent(place);
                response.await?
            }
            Sender::Http3(sender) => {
                let mut stream = sender.send_request(request).await?;
                stream.finish().await?;
                tally.sent(place);
                let status = stream.recv_response().await?.status();
                return Ok((status, Body::Http3(Box::new(stream))));
            }
        };
        Ok((response.status(), Body::Hyper(response.into_body())))
    }
}

impl Body {
    /// The next bytes. `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        match self {
            Self::Hyper(body) => {
                while let Some(frame) = body.frame().await {
                    if let Ok(data) = frame?.into_data() {
                        return Ok(Some(data));
                    }
                }
                Ok(None)
            }
            Self::Http3(stream) => {
                let data = stream.recv_data().await?;
                Ok(data.map(|mut data| data.copy_to_bytes(data.remaining())))
            }
        }
    }
}

/// The request for resource `place`.
fn request(dialer: &Dialer, place: usize) -> Result<Request<()>, http::Error> {
    let mut headers = fields(dialer, place);
    headers[0].1.extend(filling(dialer));
    let (path, host) = (dialer.site.path(place), host(dialer, place));
    let is_http1 = dialer.protocol.version() == Version::Http1;
    let mut request = Request::get(if is_http1 { path } else { format!("https://{host}{path}") });
    if is_http1 {
        request = request.header(header::HOST, host);
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.body(())
}

fn host(dialer: &Dialer, place: usize) -> &str {
    &dialer.site.domains[dialer.site.resources[place].domain].name
}

/// Header fields after the host, with the user agent first.
fn fields(dialer: &Dialer, place: usize) -> Vec<(header::HeaderName, String)> {
    let mut fields = vec![
        (header::USER_AGENT, "bentpipe-lab/1 (the light loader)".to_owned()),
        (header::ACCEPT, accepted(dialer.site.resources[place].kind).to_owned()),
    ];
    if dialer.protocol == Protocol::Http1Close {
        fields.push((header::CONNECTION, "close".to_owned()));
    }
    fields
}

/// Filler of the user agent, which brings the document's header to its size. It is the same in all
/// requests of a visit, because a different user agent would mean a different client.
fn filling(dialer: &Dialer) -> impl Iterator<Item = char> {
    // Sizes in the form of HTTP/1.1: "GET path HTTP/1.1", "host: name", and so on, each with its
    // line end.
    let line = "GET  HTTP/1.1\r\n\r\nhost: \r\n".len();
    let own = line + dialer.site.path(0).len() + host(dialer, 0).len();
    let field =
        |(name, value): &(header::HeaderName, String)| name.as_str().len() + value.len() + 4;
    let written = own + fields(dialer, 0).iter().map(field).sum::<usize>();
    let wanted = dialer.header_bytes.unwrap_or(0).min(MAX_HEADER_BYTES);
    let missing = wanted.saturating_sub(written);
    FILLING.iter().cycle().take(missing).map(|letter| char::from(*letter))
}

/// `Accept` header that browsers send for this kind.
fn accepted(kind: Kind) -> &'static str {
    match kind {
        Kind::Document => "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
        Kind::Style => "text/css,*/*;q=0.1",
        Kind::Image => "image/avif,image/webp,image/*,*/*;q=0.8",
        Kind::Script | Kind::Other => "*/*",
    }
}

/// Text of an error and its causes.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
