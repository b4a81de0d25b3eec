//! The origin server: HTTP/1.1 with kept-open connections, one listener for each congestion
//! control.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Either;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::content::Object;
use super::service::Service;
use crate::emu::{EmuError, Host};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 1024;

/// A running origin.
pub struct Origin {
    ip: IpAddr,
    _service: Service,
}

/// A kernel's congestion control, and the port of the origin where it is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Congestion {
    /// Reno, with SACK.
    Reno,
    /// CUBIC, the default of nearly every kernel.
    Cubic,
    /// BBR, version 1 in the kernels of today.
    Bbr,
}

impl Congestion {
    /// Name in the kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    fn port(self) -> u16 {
        match self {
            Self::Cubic => 8001,
            Self::Bbr => 8002,
            Self::Reno => 8003,
        }
    }
}

impl Origin {
    /// Starts one on `host`, at `ip`.
    pub fn start(host: &Host, ip: IpAddr) -> Result<Self, EmuError> {
        let listener = |congestion: Congestion| {
            listen(host, SocketAddr::new(ip, congestion.port()), congestion)
        };
        let listeners =
            [listener(Congestion::Cubic)?, listener(Congestion::Bbr)?, listener(Congestion::Reno)?];
        let service = Service::start(host, || async {
            let [cubic, bbr, reno] = listeners.map(serve_all);
            tokio::join!(cubic, bbr, reno);
        })?;
        Ok(Self { ip, _service: service })
    }

    /// Address at which it answers with this congestion control.
    pub fn address(&self, congestion: Congestion) -> SocketAddr {
        SocketAddr::new(self.ip, congestion.port())
    }
}

/// Listens at `address` of `host`; connections it accepts send with `congestion`.
pub fn listen(
    host: &Host,
    address: SocketAddr,
    congestion: Congestion,
) -> Result<std::net::TcpListener, EmuError> {
    let listen = || -> io::Result<std::net::TcpListener> {
        let domain = socket2::Domain::for_address(address);
        let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        set_congestion(&socket, congestion)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    };
    host.run(listen)?.map_err(|source| EmuError::Configure {
        host: host.name(),
        doing: format!("listen on {address} with {}", congestion.name()),
        source: source.into(),
    })
}

/// Makes `socket` send with `congestion`, or says how to get it into the kernel.
pub fn set_congestion(socket: &socket2::Socket, congestion: Congestion) -> io::Result<()> {
    let name = congestion.name();
    socket.set_tcp_congestion(name.as_bytes()).map_err(|error| {
        let help = format!("the kernel gives no {name} ({error}): `modprobe tcp_{name}` loads it");
        io::Error::new(error.kind(), help)
    })
}

/// Serves every connection of `listener`.
pub async fn serve_all(listener: std::net::TcpListener) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    // Nothing but a want of descriptors fails here, and then there is nothing to serve with.
    while let Ok((tcp, _)) = listener.accept().await {
        // A lost Nagle switch only delays.
        let _ = tcp.set_nodelay(true);
        tokio::spawn(async move {
            let answer = service_fn(|request| async move { Ok::<_, Infallible>(answer(&request)) });
            // The client's going away is no event for a server.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(tcp), answer)
                .await;
        });
    }
}

/// Answer to any request.
pub(super) fn answer(request: &Request<Incoming>) -> Response<Either<ObjectBody, String>> {
    let object = Object::at(request.uri().path());
    let response = Response::builder().header(header::CACHE_CONTROL, "no-store");
    let response = match object {
        Some(object) if request.method() == Method::GET => response
            .header(header::CONTENT_TYPE, object.kind)
            .body(Either::Left(ObjectBody::new(object, 0))),
        Some(_) => {
            response.status(StatusCode::METHOD_NOT_ALLOWED).body(Either::Right("GET".into()))
        }
        None => response
            .status(StatusCode::NOT_FOUND)
            .body(Either::Right("here are /page/N, /object/BYTES and /image/N.bmp\n".into())),
    };
    response.expect("constant headers are valid")
}

/// An object on its way, out or up.
pub struct ObjectBody {
    object: Object,
    offset: u64,
}

impl ObjectBody {
    /// Rest of `object` from `offset` on.
    pub fn new(object: Object, offset: u64) -> Self {
        Self { object, offset }
    }
}

impl Body for ObjectBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let slice = self.object.slice(self.offset);
        self.offset += slice.len() as u64;
        Poll::Ready((!slice.is_empty()).then(|| Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.offset >= self.object.bytes()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.object.bytes().saturating_sub(self.offset))
    }
}
