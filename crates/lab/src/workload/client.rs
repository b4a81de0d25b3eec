//! The client: connections to the origin for downloads and uploads, with every byte verified.

use std::cell::Cell;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Either, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use socket2::Socket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::content::Object;
use super::origin::{Arrival, ObjectBody, Origin};

/// Failure of a request.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The connection could not be opened.
    #[error("cannot connect: {0}")]
    Connect(#[from] std::io::Error),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broke(#[from] hyper::Error),
    /// Bytes are missing or wrong, the worst possible fault.
    #[error("{path} is damaged behind byte {at}")]
    Damaged {
        /// Requested path.
        path: String,
        /// Number of correct bytes.
        at: u64,
    },
    /// The server refused the request.
    #[error("{path}: the server answered {status}: {words}")]
    Status {
        /// Requested path.
        path: String,
        /// Status of the response.
        status: StatusCode,
        /// Text of the response.
        words: String,
    },
}

/// A connection for consecutive requests. If it is dropped during a request, the connection is
/// reset, so that the server stops sending.
pub struct Connection {
    sender: SendRequest<Either<Empty<Bytes>, ObjectBody>>,
    driver: JoinHandle<()>,
    /// Second handle to the same socket.
    tcp: Socket,
    under_way: bool,
}

impl HttpError {
    /// Returns `true` if the received bytes differ from the sent ones. This is the worst fault of a
    /// system under test, and otherwise a failed transfer like any other.
    pub fn is_damage(&self) -> bool {
        matches!(self, Self::Damaged { .. })
            || matches!(self, Self::Status { status, .. } if *status == StatusCode::BAD_REQUEST)
    }
}

impl Connection {
    /// Opens a connection to the origin.
    pub async fn open() -> Result<Self, HttpError> {
        Self::to(Origin::address()).await
    }

    /// Opens a connection to a server at this address.
    pub async fn to(server: SocketAddr) -> Result<Self, HttpError> {
        let tcp = TcpStream::connect(server).await?;
        tcp.set_nodelay(true)?;
        let again = Socket::from(tcp.as_fd().try_clone_to_owned()?);
        let (sender, connection) = http1::handshake(TokioIo::new(tcp)).await?;
        // An error of the connection shows up in the request that it breaks.
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Self { sender, driver, tcp: again, under_way: false })
    }

    /// Requests an object of `bytes`, from the offset in `arrival` on. `arrival` is correct even if
    /// the future is dropped.
    pub async fn get(&mut self, bytes: u64, arrival: &Cell<Arrival>) -> Result<(), HttpError> {
        self.get_counting(bytes, arrival, None).await
    }

    /// Like [`Connection::get`], and adds the received bytes to `tally` too.
    pub async fn get_counting(
        &mut self,
        bytes: u64,
        arrival: &Cell<Arrival>,
        tally: Option<&Cell<Arrival>>,
    ) -> Result<(), HttpError> {
        self.fetch(&format!("/object/{bytes}"), arrival, tally).await
    }

    /// Requests the rest of the object at `path`, like [`Connection::get_counting`].
    pub async fn fetch(
        &mut self,
        path: &str,
        arrival: &Cell<Arrival>,
        tally: Option<&Cell<Arrival>>,
    ) -> Result<(), HttpError> {
        let object =
            Object::at(path).unwrap_or_else(|| panic!("{path} is not a path of the origin"));
        let (path, query) = (path.to_owned(), format!("{path}?from={}", arrival.get().bytes));
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
            all if all == object.bytes() => {
                self.under_way = false;
                Ok(())
            }
            at => Err(HttpError::Damaged { path, at }),
        }
    }

    /// Sends an object of `bytes` from offset `from` on, as upload `number`.
    pub async fn put(&mut self, bytes: u64, from: u64, number: u64) -> Result<(), HttpError> {
        let path = format!("/object/{bytes}");
        let object = Object::at(&path).unwrap_or_else(|| unreachable!("{path} is an object"));
        let query = format!("{path}?from={from}&number={number}");
        let given = ObjectBody::new(object, from);
        self.ask(Request::post(&query), Either::Right(given)).await?.collect().await?;
        self.under_way = false;
        Ok(())
    }

    /// Number of bytes of upload `number` that the server has received.
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
            .header(header::USER_AGENT, "bentpipe-lab")
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
            // If the socket cannot be reset, it closes normally.
            let _ = self.tcp.set_linger(Some(Duration::ZERO));
        }
        self.driver.abort();
    }
}

/// Pause before another attempt.
const PAUSE: Duration = Duration::from_millis(100);

/// Requests a byte until it arrives, so that handshakes before the first flow are not measured.
pub async fn first_byte(patience: Duration) -> Result<(), HttpError> {
    const ATTEMPT: Duration = Duration::from_secs(10);
    let began = Instant::now();
    loop {
        let once = async { Connection::open().await?.get(1, &Cell::default()).await };
        match timeout(ATTEMPT, once).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) if began.elapsed() > patience => return Err(error),
            Err(_) if began.elapsed() > patience => {
                return Err(HttpError::Connect(std::io::ErrorKind::TimedOut.into()));
            }
            _ => sleep(PAUSE).await,
        }
    }
}

/// Opens a connection to `to` through a SOCKS5 proxy (RFC 1928).
pub async fn socks5(proxy: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    let mut tcp = TcpStream::connect(proxy).await?;
    tcp.set_nodelay(true)?;
    tcp.write_all(&[5, 1, 0]).await?;
    let mut method = [0; 2];
    tcp.read_exact(&mut method).await?;
    let mut request = vec![5, 1, 0];
    match to {
        SocketAddr::V4(to) => request.extend([&[1][..], &to.ip().octets()].concat()),
        SocketAddr::V6(to) => request.extend([&[4][..], &to.ip().octets()].concat()),
    }
    request.extend(to.port().to_be_bytes());
    tcp.write_all(&request).await?;
    let mut reply = [0; 4];
    tcp.read_exact(&mut reply).await?;
    if method != [5, 0] || reply[1] != 0 {
        let why = format!("the SOCKS5 proxy answered {method:?}, {reply:?}");
        return Err(std::io::Error::other(why));
    }
    let mut bound = [0; 18];
    let rest = if reply[3] == 4 { 18 } else { 6 };
    tcp.read_exact(&mut bound[..rest]).await?;
    Ok(tcp)
}
