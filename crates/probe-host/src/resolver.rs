//! DNS lookups over UDP, one socket each, so that only the resolver asked can answer.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use bentpipe_probe::clock::Moment;
use bentpipe_probe::dns::{DnsPair, Lookup, NameKind, PATIENCE, ResolverKind, message};
use bentpipe_probe::target::Family;
use parking_lot::Mutex;

use crate::event::Events;
use crate::{arrival, clock, failure, random};

/// Pairs under way at a time. At 0.8 s a pair, a round of 101 pairs takes 20 s.
const PARALLEL: usize = 4;

/// Port of DNS.
const PORT: u16 = 53;

/// Largest response that is read: our query announces 1,232 bytes.
const BUFFER: usize = 1500;

/// Names of a round with the reasons of their choice.
pub type Names = VecDeque<(String, NameKind)>;

/// Looks up all names twice at one resolver. `done` takes each pair with its begin and duration.
pub fn round(
    resolver: IpAddr,
    resolver_kind: ResolverKind,
    names: Names,
    events: &Events,
    done: &(dyn Fn(Moment, u64, DnsPair) + Sync),
) {
    let names = Mutex::new(names);
    let next = || names.lock().pop_front();
    let work = || {
        while !events.stopped() {
            let Some((name, kind)) = next() else { break };
            let began = clock::now();
            let first = lookup(resolver, &name);
            let second = lookup(resolver, &name);
            let runtime_us = clock::now().boot_us.saturating_sub(began.boot_us);
            done(began, runtime_us, DnsPair { name, kind, resolver, resolver_kind, first, second });
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(work);
        }
    });
}

/// Looks up the IPv4 addresses of a name.
pub fn lookup(resolver: IpAddr, name: &str) -> Lookup {
    match exchange(resolver, name, Family::V4, Duration::MAX) {
        Ok((rtt, id, bytes)) => match message::response(id, name, Family::V4, &bytes) {
            Ok(response) => {
                let rtt_us = Some(bentpipe_probe::micros(rtt));
                Lookup { rtt_us, response: Some(response), failure: None }
            }
            Err(fault) => Lookup::failed(format!("unknown_failure: {fault}")),
        },
        Err(error) => Lookup::failed(failure::name(&error)),
    }
}

/// Addresses of a name of one family, for a connection to it. The wait ends at the boot time `end`.
pub fn addresses(
    resolver: IpAddr,
    name: &str,
    family: Family,
    end: Duration,
) -> io::Result<Vec<IpAddr>> {
    let (_, id, bytes) = exchange(resolver, name, family, end)?;
    message::addresses(id, name, family, &bytes).map_err(io::Error::other)
}

/// Sends a query and waits for its response. Datagrams that do not answer the query are dropped, because
/// anybody may send them.
fn exchange(
    resolver: IpAddr,
    name: &str,
    family: Family,
    end: Duration,
) -> io::Result<(Duration, u16, Vec<u8>)> {
    let id = u16::from_be_bytes(random::bytes()?);
    let query = message::query(id, name, family).map_err(io::Error::other)?;
    let any = Family::of(resolver).unspecified();
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(SocketAddr::new(resolver, PORT))?;
    arrival::stamp(&socket)?;
    let began = clock::boot();
    let end = end.min(began + PATIENCE);
    if end <= began {
        return Err(io::ErrorKind::TimedOut.into());
    }
    socket.send(&query)?;
    let mut buffer = [0; BUFFER];
    loop {
        let left = end.saturating_sub(clock::boot());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let received = arrival::receive(&socket, &mut buffer)?;
        let rtt = received.at.saturating_sub(began);
        let bytes = &buffer[..received.length];
        if message::response(id, name, family, bytes).is_ok() {
            return Ok((rtt, id, bytes.to_vec()));
        }
    }
}
