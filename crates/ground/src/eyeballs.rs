//! Happy Eyeballs version 2 (RFC 8305): both address families are resolved and tried alternately,
//! 250 ms apart; the first connection wins.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bentpipe_flow::ResetCode;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout};

/// Delay between the starts of two attempts (RFC 8305 section 5).
pub const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// Time for which an IPv4 answer waits for the IPv6 answer (RFC 8305 section 3).
pub const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// Maximum number of attempts for one flow, regardless of the number of addresses: at 250 ms each,
/// two seconds.
pub const MAX_ATTEMPTS: usize = 8;

/// The address family of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    /// A records.
    V4,
    /// AAAA records.
    V6,
}

/// Resolves names. Each error is the reset code that the aircraft receives.
pub trait Resolve: Send + Sync {
    /// Returns the addresses of `name` in one family, in the order to try them.
    fn resolve(
        &self,
        name: String,
        family: Family,
    ) -> BoxFuture<'_, Result<Vec<IpAddr>, ResetCode>>;
}

/// Opens connections.
pub trait Connect: Send + Sync {
    /// Type of a connection.
    type Stream: Send;
    /// Connects to `address`.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Self::Stream>>;
    /// Takes a slot for an attempt during another attempt of the same flow. Returns `None` if no
    /// slot is free. A flow's only attempt needs none.
    fn slot(&self) -> Option<Slot> {
        Some(Slot(None))
    }
}

/// Slot for an attempt during another attempt of the same flow.
pub struct Slot(pub Option<OwnedSemaphorePermit>);

/// Connects to `name` within `deadline`; returns the first connection that succeeds. `permit`
/// checks every address first and returns the address to dial, or `None`.
pub async fn dial<R: Resolve, C: Connect>(
    resolver: &R,
    connector: &C,
    permit: &(dyn Fn(IpAddr) -> Option<IpAddr> + Send + Sync),
    (name, port): (&str, u16),
    deadline: Duration,
) -> Result<C::Stream, ResetCode> {
    let v6 = resolver.resolve(name.to_owned(), Family::V6);
    let v4 = resolver.resolve(name.to_owned(), Family::V4);
    let race = Race::new(connector, permit, port);
    within(deadline, race.run(v6, v4)).await
}

/// Connects to `address` under the same rules.
pub async fn dial_address<C: Connect>(
    connector: &C,
    permit: &(dyn Fn(IpAddr) -> Option<IpAddr> + Send + Sync),
    address: SocketAddr,
    deadline: Duration,
) -> Result<C::Stream, ResetCode> {
    let ip = permit(address.ip()).ok_or(ResetCode::Forbidden)?;
    let connecting = connector.connect(SocketAddr::new(ip, address.port()));
    within(deadline, async { connecting.await.map_err(|error| code_of(&error)) }).await
}

async fn within<T>(
    deadline: Duration,
    dial: impl Future<Output = Result<T, ResetCode>>,
) -> Result<T, ResetCode> {
    timeout(deadline, dial).await.unwrap_or(Err(ResetCode::Timeout))
}

/// Reset code that reports a failed connection to the aircraft.
pub fn code_of(error: &io::Error) -> ResetCode {
    // A proxy reports the code itself.
    if let Some(code) = error.get_ref().and_then(|inner| inner.downcast_ref::<ResetCode>()) {
        return *code;
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => ResetCode::Refused,
        io::ErrorKind::TimedOut => ResetCode::Timeout,
        io::ErrorKind::PermissionDenied => ResetCode::Forbidden,
        // Out of descriptors or ports: a fault of this gateway, not of the destination.
        _ if matches!(
            error.raw_os_error(),
            Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM | libc::EADDRNOTAVAIL)
        ) =>
        {
            ResetCode::Internal
        }
        _ => ResetCode::Unreachable,
    }
}

type Answer = Result<Vec<IpAddr>, ResetCode>;

struct Race<'a, C: Connect> {
    connector: &'a C,
    permit: &'a (dyn Fn(IpAddr) -> Option<IpAddr> + Send + Sync),
    port: u16,
    v6: VecDeque<IpAddr>,
    v4: VecDeque<IpAddr>,
    last: Option<Family>,
    attempts: FuturesUnordered<BoxFuture<'a, io::Result<C::Stream>>>,
    begun: usize,
    /// Earliest time of the next attempt, unless the previous one fails.
    not_before: Instant,
    failure: Option<ResetCode>,
}

impl<'a, C: Connect> Race<'a, C> {
    fn new(
        connector: &'a C,
        permit: &'a (dyn Fn(IpAddr) -> Option<IpAddr> + Send + Sync),
        port: u16,
    ) -> Self {
        Self {
            connector,
            permit,
            port,
            v6: VecDeque::new(),
            v4: VecDeque::new(),
            last: None,
            attempts: FuturesUnordered::new(),
            begun: 0,
            not_before: Instant::now(),
            failure: None,
        }
    }

    async fn run(
        mut self,
        mut v6: BoxFuture<'_, Answer>,
        mut v4: BoxFuture<'_, Answer>,
    ) -> Result<C::Stream, ResetCode> {
        let (mut v6_known, mut v4_known) = (false, false);
        loop {
            let waiting = !self.v4.is_empty() || !self.v6.is_empty();
            if v6_known && v4_known && self.attempts.is_empty() && !waiting {
                return Err(self.failure.unwrap_or(ResetCode::NameNotFound));
            }
            tokio::select! {
                biased;
                answer = &mut v6, if !v6_known => {
                    v6_known = true;
                    self.take(Family::V6, answer);
                    if self.begun == 0 {
                        self.not_before = Instant::now();
                    }
                }
                answer = &mut v4, if !v4_known => {
                    v4_known = true;
                    self.take(Family::V4, answer);
                    if !v6_known && self.begun == 0 {
                        self.not_before = Instant::now() + RESOLUTION_DELAY;
                    }
                }
                Some(result) = self.attempts.next(), if !self.attempts.is_empty() => match result {
                    Ok(stream) => return Ok(stream),
                    Err(error) => {
                        self.fail(code_of(&error));
                        self.not_before = Instant::now();
                    }
                },
                () = sleep_until(self.not_before), if waiting => self.begin(),
            }
        }
    }

    fn take(&mut self, family: Family, answer: Answer) {
        match answer {
            Ok(addresses) => {
                for ip in addresses {
                    match ((self.permit)(ip), family) {
                        (None, _) => self.fail(ResetCode::Forbidden),
                        (Some(ip), Family::V6) => self.v6.push_back(ip),
                        (Some(ip), Family::V4) => self.v4.push_back(ip),
                    }
                }
            }
            Err(code) => self.fail(code),
        }
    }

    /// Starts the next attempt, or waits for the pending one if no slot is free. Families
    /// alternate, IPv6 first.
    fn begin(&mut self) {
        let slot = if self.attempts.is_empty() { None } else { self.connector.slot() };
        if slot.is_none() && !self.attempts.is_empty() {
            self.not_before = Instant::now() + ATTEMPT_DELAY;
            return;
        }
        let v6_turn = self.last != Some(Family::V6) || self.v4.is_empty();
        let (family, ip) = match (v6_turn, self.v6.pop_front()) {
            (true, Some(ip)) => (Family::V6, ip),
            (_, kept) => {
                if let Some(kept) = kept {
                    self.v6.push_front(kept);
                }
                let Some(ip) = self.v4.pop_front() else { return };
                (Family::V4, ip)
            }
        };
        self.last = Some(family);
        let connecting = self.connector.connect(SocketAddr::new(ip, self.port));
        self.attempts.push(Box::pin(async move {
            let connected = connecting.await;
            drop(slot);
            connected
        }));
        self.not_before = Instant::now() + ATTEMPT_DELAY;
        self.begun += 1;
        if self.begun == MAX_ATTEMPTS {
            self.v4.clear();
            self.v6.clear();
        }
    }

    /// Keeps the most informative failure. An answer from the destination ranks above silence, and
    /// silence above a name without an address.
    fn fail(&mut self, code: ResetCode) {
        let weight = |code| match code {
            ResetCode::Refused => 5,
            ResetCode::Timeout => 4,
            ResetCode::Unreachable => 3,
            ResetCode::Forbidden => 2,
            ResetCode::NameNotFound => 0,
            _ => 1,
        };
        if self.failure.is_none_or(|known| weight(code) > weight(known)) {
            self.failure = Some(code);
        }
    }
}

#[cfg(test)]
mod tests;
