//! A light HTTP/1.1 client: it opens connections where it is told to and checks every byte.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use super::content::Object;
use super::origin::{Congestion, set_congestion};

/// Route of a client to the origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// By connecting to it, or to what stands in its place.
    Direct,
    /// Through a SOCKS5 proxy (RFC 1928).
    Socks5(SocketAddr),
}

/// Destination and route of a client.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    /// The way there.
    pub route: Route,
    /// The address it asks for.
    pub origin: SocketAddr,
    /// Congestion control of its own kernel.
    pub congestion: Congestion,
}

/// Reason for which a fetch failed.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No connection.
    #[error("cannot connect: {0}")]
    Connect(#[source] io::Error),
    /// The proxy refused.
    #[error("the SOCKS5 proxy answered {0:#04x}")]
    Refused(u8),
    /// The connection or the protocol on it broke.
    #[error("the connection broke: {0}")]
    Http(#[from] hyper::Error),
    /// Not what was asked for.
    #[error("{path}: the origin answered {status}")]
    Status {
        /// Requested path.
        path: String,
        /// The answer.
        status: StatusCode,
    },
    /// Bytes went missing or came wrong: the worst that can happen.
    #[error("{path} is damaged at byte {at}")]
    Damaged {
        /// Requested path.
        path: String,
        /// The first byte known to be wrong, or where the object ended.
        at: u64,
    },
}

/// A connection that requests can follow each other on.
pub struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    host: String,
    driver: JoinHandle<()>,
}

impl Client {
    /// Opens a connection.
    pub async fn connect(&self) -> Result<Connection, FetchError> {
        let (sender, connection) = http1::handshake(TokioIo::new(self.open().await?)).await?;
        // How a connection ends shows in the request that it breaks.
        let driver = tokio::spawn(async { drop(connection.await) });
        Ok(Connection { sender, host: self.origin.to_string(), driver })
    }

    /// Fetches `path` on a new connection: the time from before connecting to the last byte.
    pub async fn fetch(&self, path: &str) -> Result<Duration, FetchError> {
        let began = Instant::now();
        self.connect().await?.get(path).await?;
        Ok(began.elapsed())
    }

    /// Opens a connection on which anything may be sent.
    pub async fn open(&self) -> Result<TcpStream, FetchError> {
        match self.route {
            Route::Direct => self.tcp(self.origin).await.map_err(FetchError::Connect),
            Route::Socks5(proxy) => {
                let mut tcp = self.tcp(proxy).await.map_err(FetchError::Connect)?;
                socks5(&mut tcp, self.origin).await?;
                Ok(tcp)
            }
        }
    }

    async fn tcp(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let domain = socket2::Domain::for_address(to);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        set_congestion(&socket, self.congestion)?;
        socket.set_tcp_nodelay(true)?;
        socket.set_nonblocking(true)?;
        TcpSocket::from_std_stream(socket.into()).connect(to).await
    }
}

impl Connection {
    /// Asks for `path`, and checks that all of it arrives.
    pub async fn get(&mut self, path: &str) -> Result<(), FetchError> {
        let (object, mut body) = self.ask(path).await?;
        let mut offset = 0;
        while let Some(data) = next(&mut body).await? {
            if !object.matches(offset, &data) {
                return Err(FetchError::Damaged { path: path.into(), at: offset });
            }
            offset += data.len() as u64;
        }
        if offset != object.bytes() {
            return Err(FetchError::Damaged { path: path.into(), at: offset });
        }
        Ok(())
    }

    /// Asks for `path`; what it should be, and what is coming.
    pub(super) async fn ask(&mut self, path: &str) -> Result<(Object, Incoming), FetchError> {
        let object = Object::at(path).unwrap_or_else(|| panic!("{path} is no path of the origin"));
        let request = Request::get(path)
            .header(header::HOST, &self.host)
            .header(header::USER_AGENT, "bentpipe-lab")
            .body(Empty::new())
            .expect("the origin's paths are valid");
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        match response.status() {
            StatusCode::OK => Ok((object, response.into_body())),
            status => Err(FetchError::Status { path: path.into(), status }),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The next bytes of `body`.
pub(super) async fn next(body: &mut Incoming) -> Result<Option<Bytes>, FetchError> {
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            return Ok(Some(data));
        }
    }
    Ok(None)
}

async fn socks5(tcp: &mut TcpStream, to: SocketAddr) -> Result<(), FetchError> {
    let broken = FetchError::Connect;
    let mut request = vec![5, 1, 0];
    tcp.write_all(&request).await.map_err(broken)?;
    let mut method = [0; 2];
    tcp.read_exact(&mut method).await.map_err(broken)?;
    if method != [5, 0] {
        return Err(FetchError::Refused(method[1]));
    }
    match to.ip() {
        IpAddr::V4(ip) => {
            request.push(1);
            request.extend_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            request.push(4);
            request.extend_from_slice(&ip.octets());
        }
    }
    request.extend_from_slice(&to.port().to_be_bytes());
    tcp.write_all(&request).await.map_err(broken)?;
    let mut reply = [0; 4];
    tcp.read_exact(&mut reply).await.map_err(broken)?;
    if reply[1] != 0 {
        return Err(FetchError::Refused(reply[1]));
    }
    let rest = if reply[3] == 4 { 18 } else { 6 };
    let mut bound = [0; 18];
    tcp.read_exact(&mut bound[..rest]).await.map_err(broken)?;
    Ok(())
}
