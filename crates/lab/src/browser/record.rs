//! Requests of a browser, from the events of the DevTools protocol's `Network` domain.
//!
//! Its timestamps are seconds of one clock. `timing` has milliseconds since its own `requestTime`,
//! and -1 for phases that did not occur. As in HAR 1.2, the time before a connection could be used
//! is `blocked`.

use std::collections::HashMap;
use std::time::Duration;

use serde::Deserialize;

use super::event::Event;

/// Maximum recorded requests of a page: ten times as many as the largest sites make.
const MAX_REQUESTS: usize = 10_000;

/// Requests of a browser during one visit.
#[derive(Debug, Default)]
pub struct Record {
    requests: Vec<Request>,
    /// Index of each request in progress.
    open: HashMap<String, usize>,
    /// Requests beyond the limit, which were not recorded.
    pub dropped: u64,
}

/// One request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Request {
    /// URL of the request.
    pub url: String,
    /// Resource type, such as `Document`, `Stylesheet` or `Image`.
    pub kind: String,
    /// Time at which the page wanted it, on the browser's clock in seconds.
    pub wanted: f64,
    /// Wall-clock time of the request, in seconds since 1970.
    pub asked_at: f64,
    /// Time of its last byte, or of its failure.
    pub ended: Option<f64>,
    /// The browser's ID of its connection, if it used one.
    pub connection: Option<u64>,
    /// Protocol, such as `http/1.1`, `h2` or `h3`.
    pub protocol: String,
    /// Status of the response.
    pub status: u16,
    /// Content type of the response, without parameters.
    pub content_type: String,
    /// Address of the server or the proxy.
    pub address: Option<String>,
    /// Received bytes of header and body, before decompression.
    pub bytes: u64,
    /// Size of the decoded body, also if it came from the cache.
    pub body_bytes: u64,
    /// `true` if the response came from the browser's own cache.
    pub is_cached: bool,
    /// Reason for the failure.
    pub failed: Option<String>,
    timing: Option<Timing>,
}

/// Duration of each part of a request; together they span `wanted` to `ended`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phases {
    /// Time before the browser did anything for it.
    pub blocked: Duration,
    /// DNS resolution.
    pub dns: Duration,
    /// Connection setup, including TLS, if a connection was made for it.
    pub connect: Duration,
    /// TLS handshake, a part of `connect`.
    pub secure: Duration,
    /// Sending of the request.
    pub send: Duration,
    /// Wait for the response header.
    pub wait: Duration,
    /// Reception of the response.
    pub receive: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Timing {
    request_time: f64,
    dns_start: f64,
    dns_end: f64,
    connect_start: f64,
    connect_end: f64,
    ssl_start: f64,
    ssl_end: f64,
    send_start: f64,
    send_end: f64,
    receive_headers_end: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Will {
    request_id: String,
    timestamp: f64,
    #[serde(default)]
    wall_time: f64,
    request: Asked,
    #[serde(default)]
    r#type: String,
    redirect_response: Option<Response>,
}

#[derive(Deserialize)]
struct Asked {
    url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    request_id: String,
    response: Response,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    status: u16,
    #[serde(default)]
    connection_id: f64,
    #[serde(default)]
    protocol: String,
    #[serde(default)]
    mime_type: String,
    #[serde(default, rename = "remoteIPAddress")]
    address: String,
    #[serde(default)]
    from_disk_cache: bool,
    encoded_data_length: f64,
    timing: Option<Timing>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    request_id: String,
    data_length: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Finished {
    request_id: String,
    timestamp: f64,
    encoded_data_length: f64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Failed {
    request_id: String,
    timestamp: f64,
    error_text: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FromMemory {
    request_id: String,
}

impl Record {
    /// Records an event. Events of other domains are ignored.
    pub fn hear(&mut self, event: &Event) -> Result<(), serde_json::Error> {
        let params = &event.params;
        match event.method.as_str() {
            "Network.requestWillBeSent" => self.begin(Will::deserialize(params)?),
            "Network.responseReceived" => {
                let Received { request_id, response } = Received::deserialize(params)?;
                self.with(&request_id, |request| request.answered(&response));
            }
            "Network.requestServedFromCache" => {
                let FromMemory { request_id } = FromMemory::deserialize(params)?;
                self.with(&request_id, |request| request.is_cached = true);
            }
            "Network.dataReceived" => {
                let Data { request_id, data_length } = Data::deserialize(params)?;
                self.with(&request_id, |request| request.body_bytes += data_length);
            }
            "Network.loadingFinished" => {
                let Finished { request_id, timestamp, encoded_data_length } =
                    Finished::deserialize(params)?;
                self.end(&request_id, timestamp, |request| {
                    request.bytes = encoded_data_length as u64;
                });
            }
            "Network.loadingFailed" => {
                let Failed { request_id, timestamp, error_text } = Failed::deserialize(params)?;
                self.end(&request_id, timestamp, |request| request.failed = Some(error_text));
            }
            _ => {}
        }
        Ok(())
    }

    /// Requests in the order in which the page wanted them.
    pub fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Returns `true` if no request is in progress.
    pub fn is_quiet(&self) -> bool {
        self.open.is_empty()
    }

    fn begin(&mut self, will: Will) {
        if let Some(redirect) = &will.redirect_response {
            self.end(&will.request_id, will.timestamp, |request| {
                request.answered(redirect);
                request.bytes = redirect.encoded_data_length as u64;
            });
        }
        // The resource is embedded in the page and crosses no network.
        if will.request.url.starts_with("data:") || will.request.url.starts_with("blob:") {
            return;
        }
        if self.requests.len() >= MAX_REQUESTS {
            self.dropped += 1;
            return;
        }
        self.open.insert(will.request_id, self.requests.len());
        let Will { request: Asked { url }, r#type: kind, timestamp: wanted, .. } = will;
        let asked_at = will.wall_time;
        self.requests.push(Request { url, kind, wanted, asked_at, ..Request::default() });
    }

    fn with(&mut self, id: &str, change: impl FnOnce(&mut Request)) {
        if let Some(place) = self.open.get(id) {
            change(&mut self.requests[*place]);
        }
    }

    fn end(&mut self, id: &str, at: f64, change: impl FnOnce(&mut Request)) {
        self.with(id, |request| {
            change(request);
            request.ended = Some(at);
        });
        self.open.remove(id);
    }
}

impl Request {
    /// Returns `true` if the request succeeded with status 200.
    pub fn came(&self) -> bool {
        self.failed.is_none() && self.status == 200
    }

    fn answered(&mut self, response: &Response) {
        self.status = response.status;
        self.protocol.clone_from(&response.protocol);
        self.content_type.clone_from(&response.mime_type);
        self.address = Some(&response.address).filter(|address| !address.is_empty()).cloned();
        self.is_cached |= response.from_disk_cache;
        self.timing = response.timing;
        if response.connection_id > 0.0 {
            self.connection = Some(response.connection_id as u64);
        }
    }

    /// Durations of its phases, as far as it got. The clocks of the browser's threads differ by
    /// some milliseconds, so a phase that would be negative counts as zero.
    pub fn phases(&self) -> Phases {
        let Some(ended) = self.ended else { return Phases::default() };
        let Some(timing) = self.timing.filter(|_| !self.is_cached) else {
            return Phases { blocked: seconds(ended - self.wanted), ..Phases::default() };
        };
        let began = [timing.dns_start, timing.connect_start, timing.send_start];
        let began = began.into_iter().find(|at| *at >= 0.0).unwrap_or(0.0);
        let since = |ms: f64| timing.request_time + ms / 1e3;
        let part = |from: f64, to: f64| match from >= 0.0 {
            true => seconds((to - from) / 1e3),
            false => Duration::ZERO,
        };
        let (dns, connect) = (
            part(timing.dns_start, timing.dns_end),
            part(timing.connect_start, timing.connect_end),
        );
        let parts = seconds((timing.send_start - began) / 1e3);
        // Gaps between the phases count as waiting too.
        let between = parts.saturating_sub(dns + connect);
        Phases {
            blocked: seconds(since(began) - self.wanted) + between,
            dns,
            connect,
            secure: part(timing.ssl_start, timing.ssl_end),
            send: part(timing.send_start, timing.send_end),
            wait: part(timing.send_end, timing.receive_headers_end),
            receive: seconds(ended - since(timing.receive_headers_end)),
        }
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn hear(record: &mut Record, method: &str, params: Value) {
        record.hear(&Event { method: format!("Network.{method}"), params }).unwrap();
    }

    fn will(record: &mut Record, id: &str, url: &str, at: f64) {
        let asked =
            json!({ "requestId": id, "timestamp": at, "request": { "url": url }, "type": "Image" });
        hear(record, "requestWillBeSent", asked);
    }

    fn timing() -> Value {
        json!({
            "requestTime": 10.5, "dnsStart": 0.0, "dnsEnd": 20.0, "connectStart": 30.0, "connectEnd": 230.0,
            "sslStart": 130.0, "sslEnd": 230.0, "sendStart": 231.0, "sendEnd": 232.0,
            "receiveHeadersEnd": 832.0
        })
    }

    #[test]
    fn the_parts_of_a_request_are_all_of_it() {
        let mut record = Record::default();
        will(&mut record, "1", "https://a.test/", 10.0);
        assert!(!record.is_quiet());
        let response = json!({
            "status": 200, "connectionId": 7, "protocol": "h2", "encodedDataLength": 100, "timing": timing()
        });
        hear(&mut record, "responseReceived", json!({ "requestId": "1", "response": response }));
        let end = json!({ "requestId": "1", "timestamp": 12.332, "encodedDataLength": 5100 });
        hear(&mut record, "loadingFinished", end);
        assert!(record.is_quiet());
        let request = &record.requests()[0];
        assert_eq!((request.status, request.connection, request.bytes), (200, Some(7), 5100));
        let phases = request.phases();
        assert_eq!(
            [phases.blocked, phases.dns, phases.connect, phases.secure, phases.send, phases.wait],
            [511, 20, 200, 100, 1, 600].map(ms)
        );
        assert_eq!(phases.receive.as_secs_f64(), 12.332 - 11.332);
    }

    #[test]
    fn a_redirect_is_two_requests() {
        let mut record = Record::default();
        will(&mut record, "1", "http://a.test/", 1.0);
        hear(
            &mut record,
            "requestWillBeSent",
            json!({
                "requestId": "1", "timestamp": 2.0, "request": { "url": "http://a.test/b" },
                "redirectResponse": { "status": 301, "encodedDataLength": 80 }
            }),
        );
        hear(
            &mut record,
            "loadingFailed",
            json!({
                "requestId": "1", "timestamp": 3.0, "errorText": "net::ERR_CONNECTION_RESET"
            }),
        );
        let [first, second] = record.requests() else { panic!("{record:?}") };
        assert_eq!((first.status, first.ended, first.bytes), (301, Some(2.0), 80));
        assert_eq!(second.failed.as_deref(), Some("net::ERR_CONNECTION_RESET"));
        assert_eq!(second.phases().blocked, ms(1000));
    }

    #[test]
    fn inline_and_unknown_resources_are_not_requests() {
        let mut record = Record::default();
        will(&mut record, "1", "data:image/gif;base64,R0lGOD", 1.0);
        hear(
            &mut record,
            "loadingFinished",
            json!({
                "requestId": "9", "timestamp": 3.0, "encodedDataLength": 1
            }),
        );
        assert!(record.requests().is_empty() && record.is_quiet());
    }

    #[test]
    fn the_record_is_bounded() {
        let mut record = Record::default();
        for number in 0..MAX_REQUESTS + 3 {
            will(&mut record, &number.to_string(), "http://a.test/", 1.0);
        }
        assert_eq!((record.requests().len(), record.dropped), (MAX_REQUESTS, 3));
    }

    #[test]
    fn cached_resources_take_no_link_bytes() {
        let mut record = Record::default();
        will(&mut record, "1", "http://a.test/", 1.0);
        hear(&mut record, "requestServedFromCache", json!({ "requestId": "1" }));
        hear(
            &mut record,
            "loadingFinished",
            json!({
                "requestId": "1", "timestamp": 1.25, "encodedDataLength": 0
            }),
        );
        let phases = record.requests()[0].phases();
        assert_eq!((phases.blocked, phases.receive), (ms(250), ms(0)));
    }
}
