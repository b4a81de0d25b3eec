//! A client for transfers: connections to the server on which objects come and go.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use bentpipe_lab::workload::content::Object;
use bentpipe_lab::workload::origin::ObjectBody;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Either, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::Socket;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

use crate::origin::{Arrival, Origin};

/// Fault of an answer.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    /// It broke.
    #[error("the connection broke: {0}")]
    Broke(#[from] hyper::Error),
    /// Bytes went missing or came wrong: the worst that can happen.
    #[error("{path} is damaged behind byte {at}")]
    Damaged {
        /// Requested path.
        path: String,
        /// Number of correct bytes.
        at: u64,
    },
    /// Not what was asked for.
    #[error("{path}: the server answered {status}: {words}")]
    Status {
        /// Requested path.
        path: String,
        /// The answer …
        status: StatusCode,
        /// … and its text.
        words: String,
    },
}

/// A connection that requests can follow each other on. Dropped while one is under way it is reset, so
/// that nothing of what was given up goes on behind it.
pub struct Connection {
    sender: SendRequest<Either<Empty<Bytes>, ObjectBody>>,
    driver: JoinHandle<()>,
    /// The same socket.
    tcp: Socket,
    under_way: bool,
}

impl HttpError {
    /// Returns `true` if the bytes are not those that were sent: the worst fault of a contender,
    /// and a failed transfer like any other.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
            || matches!(self, Self::Status { status, .. } if *status == StatusCode::BAD_REQUEST)
    }
}

impl Connection {
    /// Opens one.
    pub async fn open() -> Result<Self, HttpError> {
        Self::to(Origin::address()).await
    }

    /// Opens one to a server at this address.
    pub async fn to(server: SocketAddr) -> Result<Self, HttpError> {
        let tcp = TcpStream::connect(server).await?;
        tcp.set_nodelay(true)?;
        let again = Socket::from(tcp.as_fd().try_clone_to_owned()?);
        let (sender, connection) = http1::handshake(TokioIo::new(tcp)).await?;
        // How a connection ends shows in the request that it breaks.
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender, driver, tcp: again, under_way: false })
    }

    /// Asks for an object of so many bytes, from where `arrival` ends; `arrival` is right whenever
    /// this is dropped.
    pub async fn get(&mut self, bytes: u64, arrival: &Cell<Arrival>) -> Result<(), HttpError> {
        self.get_counting(bytes, arrival, None).await
    }

    /// The same; what comes is added to `tally` too.
    pub async fn get_counting(
        &mut self,
        bytes: u64,
        arrival: &Cell<Arrival>,
        tally: Option<&Cell<Arrival>>,
    ) -> Result<(), HttpError> {
        let path = format!("/object/{bytes}");
        let object = Object::at(&path).unwrap_or_else(|| unreachable!("{path} is an object"));
        let query = format!("{path}?from={}", arrival.get().bytes);
        let mut body = self.ask(Request::get(&query), Either::Left(Empty::new())).await?;
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let mut so_far = arrival.get();
            if !object.matches(so_far.bytes, &data) {
                return Err(HttpError::Damaged { path, at: so_far.bytes });
            }
            so_far.add(data.len());
            arrival.set(so_far);
            if let Some(tally) = tally {
                let mut all = tally.get();
                all.add(data.len());
                tally.set(all);
            }
        }
        match arrival.get().bytes {
            all if all == bytes => {
                self.under_way = false;
                Ok(())
            }
            at => Err(HttpError::Damaged { path, at }),
        }
    }

    /// Sends an object of so many bytes from `from` on, as upload `number`.
    pub async fn put(&mut self, bytes: u64, from: u64, number: u64) -> Result<(), HttpError> {
        let path = format!("/object/{bytes}");
        let object = Object::at(&path).unwrap_or_else(|| unreachable!("{path} is an object"));
        let query = format!("{path}?from={from}&number={number}");
        let given = ObjectBody::new(object, from);
        self.ask(Request::post(&query), Either::Right(given)).await?.collect().await?;
        self.under_way = false;
        Ok(())
    }

    /// Bytes that the server has of upload `number`.
    pub async fn has(&mut self, number: u64) -> Result<u64, HttpError> {
        let path = format!("/up/{number}");
        let body = self.ask(Request::get(&path), Either::Left(Empty::new())).await?;
        let bytes = body.collect().await?.to_bytes();
        self.under_way = false;
        let count = std::str::from_utf8(&bytes).ok().and_then(|text| text.parse().ok());
        count.ok_or(HttpError::Damaged { path, at: 0 })
    }

    async fn ask(
        &mut self,
        request: http::request::Builder,
        body: Either<Empty<Bytes>, ObjectBody>,
    ) -> Result<hyper::body::Incoming, HttpError> {
        let request = request
            .header(header::HOST, Origin::address().to_string())
            .header(header::USER_AGENT, "bentpipe-papers")
            .body(body)
            .expect("the server's paths are valid");
        let path = request.uri().path().to_owned();
        self.under_way = true;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        if status == StatusCode::OK {
            return Ok(response.into_body());
        }
        let words = response.into_body().collect().await?.to_bytes();
        let words = String::from_utf8_lossy(&words).trim().to_owned();
        Err(HttpError::Status { path, status, words })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self.under_way {
            // What cannot be reset ends as other connections do.
            let _ = self.tcp.set_linger(Some(Duration::ZERO));
        }
        self.driver.abort();
    }
}
