//! Requests to a receiver, one after another on one connection, with a limited rate.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_probe::upload::{Batch, Fault, Receipt, Receiver, batch_path, session_path};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::timeout;
use url::Url;

use crate::channel::{self, Trust};
use crate::{clock, failure, network, tcp_info, web};

/// Longest request. The receiver's connections end after 120 s. A batch of 16 kB then needs 1.2 kbit/s.
const PATIENCE: Duration = Duration::from_secs(110);

/// Age after which a connection is used for no further request, so that the receiver does not cut one.
const MAX_AGE: Duration = Duration::from_secs(55);

/// Longest lookup of the receiver's name.
const MAX_LOOKUP: Duration = Duration::from_secs(10);

/// Longest answer.
const MAX_ANSWER: usize = 4096;

/// DSCP of lower effort (RFC 8622), in the field of IP.
const LOWER_EFFORT: u32 = 1 << 2;

/// Bytes of a request header, and of the handshakes of a connection, about.
const HEADER: u64 = 300;
const HANDSHAKE: u64 = 1000;

/// A receiver over the network.
pub struct Link {
    to: Url,
    authorization: String,
    trust: Trust,
    rate_bps: u64,
    /// Boot time before which no further request begins.
    free_at: Duration,
    connection: Option<Connection>,
    sent: u64,
    stop: [Signal; 3],
    runtime: Runtime,
}

struct Connection {
    sender: SendRequest<Full<Bytes>>,
    began: Duration,
}

impl Link {
    /// A link that takes so many bits per second.
    pub fn new(to: Url, token: &str, rate_bps: u64) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let stop = [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
        ];
        drop(entered);
        Ok(Self {
            to,
            authorization: format!("Bearer {token}"),
            trust: Trust::of_the_system(),
            rate_bps,
            free_at: Duration::ZERO,
            connection: None,
            sent: 0,
            stop,
            runtime,
        })
    }

    /// Bytes of all requests, handshakes included, about. Of a cut request all count.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Sends a request, and returns the answer.
    fn exchange(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), Fault> {
        let lost = |error: io::Error| Fault::Lost(failure::name(&error));
        self.wait(self.free_at.saturating_sub(clock::boot()))?;
        let usable = |open: &Connection| {
            !open.sender.is_closed() && clock::boot().saturating_sub(open.began) < MAX_AGE
        };
        let open = self.connection.take().filter(usable);
        let mut bytes = HEADER + body.len() as u64;
        let address = match open {
            Some(_) => None,
            None => {
                bytes += HANDSHAKE;
                Some(self.address().map_err(lost)?)
            }
        };
        self.sent += bytes;
        self.free_at =
            clock::boot() + Duration::from_micros(bytes * 8_000_000 / self.rate_bps.max(1));
        let request = self.request(method, path, body).map_err(lost)?;
        let (to, trust, rate_bps) = (&self.to, &self.trust, self.rate_bps);
        let attempt = async {
            let mut open = match (open, address) {
                (Some(open), _) => open,
                (None, Some(address)) => connect(to, address, trust, rate_bps).await?,
                (None, None) => return Err(io::ErrorKind::NotConnected.into()),
            };
            open.sender.ready().await.map_err(web::fault)?;
            let response = open.sender.send_request(request).await.map_err(web::fault)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            Ok::<_, io::Error>((status, body.map_err(io::Error::other)?.to_bytes(), open))
        };
        let stop = &mut self.stop;
        let answer = self.runtime.block_on(async {
            tokio::select! {
                () = stopped(stop) => Err(Fault::Stopped),
                answer = timeout(PATIENCE, attempt) => match answer {
                    Ok(answer) => answer.map_err(lost),
                    Err(_) => Err(lost(io::ErrorKind::TimedOut.into())),
                },
            }
        });
        let (status, body, open) = answer?;
        self.connection = Some(open);
        Ok((status, body))
    }

    fn request(&self, method: Method, path: &str, body: Bytes) -> io::Result<Request<Full<Bytes>>> {
        let url = self.to.join(path).map_err(io::Error::other)?;
        Request::builder()
            .method(method)
            .uri(url.path())
            .header(HOST, &url[url::Position::BeforeHost..url::Position::AfterPort])
            .header(AUTHORIZATION, &self.authorization)
            .body(Full::new(body))
            .map_err(io::Error::other)
    }

    fn address(&self) -> io::Result<SocketAddr> {
        let resolvers: Vec<IpAddr> = network::look().resolvers;
        let address = web::address_until(&self.to, &resolvers, clock::boot() + MAX_LOOKUP)?;
        Ok(SocketAddr::new(address, self.to.port_or_known_default().unwrap_or(443)))
    }

    fn wait(&mut self, time: Duration) -> Result<(), Fault> {
        let stop = &mut self.stop;
        self.runtime.block_on(async {
            match timeout(time, stopped(stop)).await {
                Ok(()) => Err(Fault::Stopped),
                Err(_) => Ok(()),
            }
        })
    }
}

impl Receiver for Link {
    fn last(&mut self, session: &str) -> Result<Option<Receipt>, Fault> {
        let path = session_path(session);
        match self.exchange(Method::GET, &path, Bytes::new())? {
            (StatusCode::NO_CONTENT, _) => Ok(None),
            answer => receipt(answer).map(Some),
        }
    }

    fn put(&mut self, batch: &Batch) -> Result<Receipt, Fault> {
        receipt(self.exchange(Method::PUT, &batch_path(batch), batch.body.clone().into())?)
    }

    fn pause(&mut self, time: Duration, why: &str) -> Result<(), Fault> {
        eprintln!("bentpipe probe: the upload waits for {} s: {why}", time.as_secs());
        self.wait(time)
    }
}

/// Waits for a signal.
async fn stopped([interrupt, terminate, hangup]: &mut [Signal; 3]) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
}

fn receipt((status, body): (StatusCode, Bytes)) -> Result<Receipt, Fault> {
    match status {
        StatusCode::OK => serde_json::from_slice(&body)
            .map_err(|_| Fault::Refused("its answer is not a receipt".into())),
        StatusCode::CONFLICT => Err(Fault::Conflict),
        StatusCode::NOT_FOUND => Err(Fault::Refused("it takes no uploads at this address".into())),
        StatusCode::UNAUTHORIZED => Err(Fault::Refused("the token is not the receiver's".into())),
        StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::INTERNAL_SERVER_ERROR
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Err(Fault::Lost(format!("status {status}"))),
        status => {
            // What a stranger writes does not control the terminal.
            let text = String::from_utf8_lossy(&body);
            let text: String = text.chars().filter(|c| !c.is_control()).take(200).collect();
            Err(Fault::Refused(format!("status {status} {text}").trim_end().into()))
        }
    }
}

/// Connects with the rate and the class of the upload. Headers of TCP and IP take a tenth at most.
async fn connect(
    to: &Url,
    address: SocketAddr,
    trust: &Trust,
    rate_bps: u64,
) -> io::Result<Connection> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    match address {
        SocketAddr::V4(_) => SockRef::from(&socket).set_tos_v4(LOWER_EFFORT)?,
        SocketAddr::V6(_) => SockRef::from(&socket).set_tclass_v6(LOWER_EFFORT)?,
    }
    // A kernel without it still has the pauses between requests.
    let _ = tcp_info::limit_rate(&socket, u32::try_from(rate_bps / 8 * 9 / 10).unwrap_or(u32::MAX));
    let (began, stream) = (clock::boot(), socket.connect(address).await?);
    let (channel, _) = channel::over(stream, to, trust).await?;
    let (sender, connection) = http1::handshake(TokioIo::new(channel)).await.map_err(web::fault)?;
    // It ends with its sender.
    tokio::spawn(connection);
    Ok(Connection { sender, began })
}
