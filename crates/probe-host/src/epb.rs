//! EPB tests with an own origin: files over one connection, one after another.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use bentpipe_probe::epb::{Epb, FILE, MAX_TIME, files};
use bentpipe_probe::random::Random;
use bentpipe_probe::rate::Direction;
use bentpipe_units::BitRate;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HOST, USER_AGENT};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;
use url::Url;

use crate::channel::CLIENT;
use crate::{failure, network, origin, web};

/// Wait for the connection.
const CONNECT_PATIENCE: Duration = Duration::from_secs(10);

/// Provisioned bandwidth of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provisioned {
    /// To the aircraft.
    pub down: BitRate,
    /// From the aircraft.
    pub up: BitRate,
}

impl Provisioned {
    /// Rate of a direction in bits per second.
    pub fn bps(self, direction: Direction) -> u64 {
        match direction {
            Direction::Down => self.down.bps(),
            Direction::Up => self.up.bps(),
        }
    }
}

impl FromStr for Provisioned {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = |why: String| {
            format!("`{text}`: {why}. Write the rates down and up, for example 20 Mbit/s,2 Mbit/s")
        };
        let (down, up) = text.split_once(',').ok_or_else(|| fault("it has no comma".into()))?;
        let rate = |text: &str| {
            let rate: BitRate = text.trim().parse().map_err(|error| fault(format!("{error}")))?;
            if rate.bps() == 0 { Err(fault("a rate is 0".into())) } else { Ok(rate) }
        };
        Ok(Self { down: rate(down)?, up: rate(up)? })
    }
}

/// Measures a direction. Failures are part of the result.
pub fn measure(
    origin: &Url,
    direction: Direction,
    provisioned: Provisioned,
    resolvers: &[IpAddr],
) -> Epb {
    let mut test = Epb::new(direction, provisioned.bps(direction));
    let interface = network::look().interface;
    let count = || {
        let interface = interface.clone()?;
        let counters = network::counters(&interface)?;
        Some((interface, counters))
    };
    let before = count();
    if let Err(error) = run(origin, resolvers, &mut test) {
        test.failure = Some(failure::name(&error));
    }
    test.interface = before
        .zip(count())
        .map(|((interface, before), (_, after))| (interface, after.since(before)));
    test
}

fn run(origin: &Url, resolvers: &[IpAddr], test: &mut Epb) -> io::Result<()> {
    let port = origin.port_or_known_default().unwrap_or(80);
    let address = SocketAddr::new(web::address(origin, resolvers)?, port);
    test.server = Some(address);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let connecting = tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(address)).await;
        let stream = connecting.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        stream.set_nodelay(true)?;
        let (sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(web::fault)?;
        // It ends with the runtime, which lives as long as this test.
        tokio::spawn(connection);
        match tokio::time::timeout(MAX_TIME, transfers(origin, sender, test)).await {
            Ok(result) => result,
            Err(_) if test.bytes > 0 => Ok(()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    })
}

/// Transfers the files. `test` has the bytes so far at each time, so that it may be cut.
async fn transfers(
    origin: &Url,
    mut sender: SendRequest<Full<Bytes>>,
    test: &mut Epb,
) -> io::Result<()> {
    let host = &origin[url::Position::BeforeHost..url::Position::AfterPort];
    let mut random = Random::new(u64::from_be_bytes(crate::random::bytes()?));
    let start = Instant::now();
    let elapsed = || bentpipe_probe::micros(start.elapsed());
    for _ in 0..files(test.direction) {
        let (method, path, body) = match test.direction {
            Direction::Down => (Method::GET, origin::path(FILE, random.next_u64()), Bytes::new()),
            Direction::Up => {
                // Bytes that no proxy can compress.
                let words = (0..FILE / 8).flat_map(|_| random.next_u64().to_be_bytes());
                (Method::POST, origin::UPLOAD.to_owned(), words.collect())
            }
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, host)
            .header(USER_AGENT, CLIENT)
            .body(Full::new(body))
            .map_err(io::Error::other)?;
        let response = sender.send_request(request).await.map_err(web::fault)?;
        let (status, mut incoming) = (response.status(), response.into_body());
        let expected = match test.direction {
            Direction::Down => StatusCode::OK,
            Direction::Up => StatusCode::NO_CONTENT,
        };
        if status != expected {
            return Err(io::Error::other(format!("the origin answers {status}")));
        }
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame.map_err(web::fault)?.into_data() else { continue };
            test.bytes += data.len() as u64;
            test.elapsed_us = elapsed();
        }
        if test.direction == Direction::Up {
            test.bytes += FILE;
            test.elapsed_us = elapsed();
        }
        test.files += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn provisioned() -> Provisioned {
        "8 Mbit/s, 1 Mbit/s".parse().unwrap()
    }

    #[test]
    fn rates_and_their_mistakes() {
        assert_eq!(provisioned().bps(Direction::Down), 8_000_000);
        assert_eq!(provisioned().bps(Direction::Up), 1_000_000);
        for text in ["", "8 Mbit/s", "8 Mbit/s,", "0 bit/s,1 Mbit/s", "8 Mbps,1 Mbps"] {
            assert!(text.parse::<Provisioned>().unwrap_err().contains("20 Mbit/s,2"), "{text}");
        }
    }

    #[test]
    fn files_in_both_directions() {
        let origin = crate::origin::tests::start();
        for (direction, files) in [(Direction::Down, 20), (Direction::Up, 2)] {
            let test = measure(&origin, direction, provisioned(), &[]);
            assert_eq!((test.failure.as_ref(), test.files), (None, files), "{test:?}");
            assert_eq!(test.bytes, u64::from(files) * FILE);
            assert!(test.ratio().is_some_and(|ratio| ratio > 0.0), "{test:?}");
        }
    }

    #[test]
    fn failures_are_results() {
        use std::io::{Read, Write};
        let origin = |answer: &'static [u8]| {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(answer);
                // Closing it at once resets the connection, because the linger time is 0.
                let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            });
            Url::parse(&url).unwrap()
        };
        let reset = measure(&origin(b""), Direction::Down, provisioned(), &[]);
        assert!(reset.is_reset() && reset.ratio().is_none(), "{reset:?}");
        let page = origin(b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n");
        let portal = measure(&page, Direction::Down, provisioned(), &[]);
        assert!(portal.failure.is_some_and(|why| why.contains("302")));
    }
}
