//! Servers in the target's namespace. Each keeps a log, with which the probe's records are compared.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{JoinHandle, sleep};
use std::time::Duration;

use bentpipe_probe::dns::Quadrants;

use crate::hosts::Chain;

/// Delay of the echo server, and of a reply that it delays.
pub const DELAY: Duration = Duration::from_millis(40);
pub const LATE: Duration = Duration::from_millis(3000);

/// Time that the modelled resolver takes to ask the ground.
pub const MISS: Duration = Duration::from_millis(400);

/// A server that runs.
pub struct Server<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T> Server<T> {
    /// Ends it and returns its log.
    pub fn stop(self) -> T {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a server that ends")
    }
}

/// Receives datagrams until the server is stopped.
fn serve<T: Default + Send + 'static>(
    chain: &Chain,
    port: u16,
    mut answer: impl FnMut(&mut T, &Arc<UdpSocket>, &[u8], SocketAddr) + Send + 'static,
) -> Server<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, (ready, bound)) = (Arc::clone(&stop), channel());
    let thread = chain.far().thread(move || {
        let socket = Arc::new(UdpSocket::bind(("::", port)).expect("a port"));
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        ready.send(()).expect("somebody waits");
        let mut log = T::default();
        let mut buffer = [0; 1500];
        while !stopped.load(Ordering::Relaxed) {
            if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                answer(&mut log, &socket, &buffer[..length], from);
            }
        }
        log
    });
    bound.recv().expect("a server that starts");
    Server { stop, thread }
}

fn later(socket: &Arc<UdpSocket>, delay: Duration, bytes: Vec<u8>, to: SocketAddr) {
    let socket = Arc::clone(socket);
    std::thread::spawn(move || {
        sleep(delay);
        socket.send_to(&bytes, to)
    });
}

/// An echo server that loses two pings and delays one. Its log has the numbers of the pings.
pub fn echo(chain: &Chain, lost: [u32; 2], late: u32) -> Server<Vec<u32>> {
    serve(chain, 4007, move |log: &mut Vec<u32>, socket, bytes, from| {
        let number = u32::from_be_bytes(bytes[8..12].try_into().expect("12 bytes"));
        log.push(number);
        let delay = if number == late { LATE } else { DELAY };
        if !lost.contains(&number) {
            later(socket, delay, bytes.to_vec(), from);
        }
    })
}

/// Log of the modelled resolver: for each name, whether each lookup was a hit.
#[derive(Default)]
pub struct Lookups(BTreeMap<String, Vec<bool>>);

impl Lookups {
    /// Quadrants of the first two lookups of each name.
    pub fn quadrants<'n>(&self, names: impl Iterator<Item = &'n str>) -> Quadrants {
        let mut found = Quadrants::default();
        for name in names {
            match self.0.get(name).map(Vec::as_slice) {
                Some([true, true, ..]) => found.both_hit += 1,
                Some([false, true, ..]) => found.miss_hit += 1,
                Some([true, false, ..]) => found.hit_miss += 1,
                Some([false, false, ..]) => found.both_miss += 1,
                _ => found.failed += 1,
            }
        }
        found
    }
}

/// A resolver with a cache that has some names and never stores some others.
pub fn resolver(chain: &Chain) -> Server<Lookups> {
    serve(chain, 53, |log: &mut Lookups, socket, query, from| {
        let Some(name) = name_of(query) else { return };
        let earlier = log.0.entry(name.clone()).or_default();
        let sum: usize = name.bytes().map(usize::from).sum();
        let stored = !earlier.is_empty() && !sum.is_multiple_of(11);
        let hit = sum.is_multiple_of(3) || stored;
        earlier.push(hit);
        // The query with the flags of a response. It has no answers, which is a proper response.
        let mut response = query.to_vec();
        response[2] |= 0x80;
        response[3] |= 0x80;
        later(socket, if hit { Duration::ZERO } else { MISS }, response, from);
    })
}

/// The name in the question.
fn name_of(query: &[u8]) -> Option<String> {
    let mut labels = Vec::new();
    let mut rest = query.get(12..)?;
    while let Some((length, after)) = rest.split_first().filter(|(length, _)| **length > 0) {
        let (label, next) = after.split_at_checked(usize::from(*length))?;
        labels.push(String::from_utf8_lossy(label).into_owned());
        rest = next;
    }
    Some(labels.join("."))
}

/// A STUN server that tells each client its address.
pub fn stun(chain: &Chain) -> Server<()> {
    serve(chain, 3478, |(), socket, request, from| {
        let (family, address) = match from.ip().to_canonical() {
            IpAddr::V4(v4) => (1, v4.octets().to_vec()),
            IpAddr::V6(v6) => (2, v6.octets().to_vec()),
        };
        let length = address.len() as u8;
        let mut answer = vec![1, 1, 0, length + 8];
        // The cookie and the identifier, which are the key too.
        answer.extend(&request[4..20]);
        answer.extend([0, 0x20, 0, length + 4, 0, family, 0, 0]);
        answer.extend(address.iter().zip(&request[4..20]).map(|(byte, key)| byte ^ key));
        later(socket, DELAY, answer, from);
    })
}

/// A portal that answers every request with a redirect.
pub fn portal(chain: &Chain) -> Server<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let (stopped, (ready, bound)) = (Arc::clone(&stop), channel());
    let thread = chain.far().thread(move || {
        let listener = TcpListener::bind("0.0.0.0:80").expect("a port");
        listener.set_nonblocking(true).expect("a listener");
        ready.send(()).expect("somebody waits");
        while !stopped.load(Ordering::Relaxed) {
            match listener.accept() {
                Ok((mut stream, _)) => {
                    stream.set_nonblocking(false).expect("a stream");
                    let _ = stream.read(&mut [0; 1024]);
                    let _ = stream.write_all(
                        b"HTTP/1.1 302 Found\r\nLocation: http://login.example/\r\n\r\n",
                    );
                }
                Err(_) => sleep(Duration::from_millis(20)),
            }
        }
    });
    bound.recv().expect("a server that starts");
    Server { stop, thread }
}
