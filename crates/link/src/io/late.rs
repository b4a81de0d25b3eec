//! A socket that comes and goes with its network interface, as that of a modem on USB does.

use std::fmt::{self, Debug, Formatter};
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use quinn_udp::{RecvMeta, Transmit};

use super::{Socket, UdpSocket, Writable};
use crate::Dscp;

/// Interval at which the interface is looked for, if there is no news.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Minimum time between two looks.
const MIN_LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Datagrams that a receive buffer may hold, whatever the socket to come can do.
const MAX_GRO_SEGMENTS: usize = 64;

/// Place at which a socket is opened.
pub trait Place: Send + Sync + 'static {
    /// Name for the log.
    fn name(&self) -> &str;
    /// Number of the interface as it is now; `None` if there is none. A socket is of no use once the
    /// interface has another number.
    fn interface(&self) -> Option<u32>;
    /// Returns `false` if the interface exists and nothing is connected to it. Then nothing is sent, and
    /// the socket stays for its return.
    fn is_connected(&self) -> bool {
        true
    }
    /// Address from which packets to the peer leave now; `None` if no route leads there. Then nothing is
    /// sent. An address of zeros is an unknown one.
    fn source(&self) -> Option<IpAddr> {
        Some(Ipv6Addr::UNSPECIFIED.into())
    }
    /// Waits until something may have changed; forever if nobody would notice.
    fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(std::future::pending())
    }
    /// Opens a socket there.
    fn open(&self) -> io::Result<std::net::UdpSocket>;
}

/// A socket at a place that may not exist yet, or not any more.
pub struct LateSocket {
    place: Box<dyn Place>,
    marks: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    socket: Option<Arc<UdpSocket>>,
    /// Number of the interface that the socket is bound to.
    interface: Option<u32>,
    /// Nothing is connected to the interface.
    is_cut: bool,
    /// Source of packets to the peer, if there is a route.
    source: Option<IpAddr>,
    /// The last attempt failed.
    failed: bool,
    /// Task that waits for datagrams.
    reader: Option<Waker>,
    /// The socket can send, or cannot, and nobody has taken this news.
    news: Option<bool>,
    /// Task that waits for news.
    watcher: Option<Waker>,
}

impl LateSocket {
    /// Opens a socket at `place` now or later, in a task of the current tokio runtime. `marks` says
    /// whether packets show their classes by their DSCP.
    pub fn start(place: Box<dyn Place>, marks: bool) -> Arc<Self> {
        let this = Arc::new(Self { place, marks, state: Mutex::default() });
        this.look();
        // Nobody waits for the first state.
        this.state.lock().news = None;
        tokio::spawn(Self::watch(Arc::downgrade(&this)));
        this
    }

    async fn watch(this: Weak<Self>) {
        loop {
            let Some(this) = this.upgrade() else { return };
            // Without news, the interval has passed.
            let _ = tokio::time::timeout(LOOK_INTERVAL, this.place.changed()).await;
            this.look();
            // Routes may change often, of all other programs too.
            drop(this);
            tokio::time::sleep(MIN_LOOK_INTERVAL).await;
        }
    }

    /// Opens the socket if its interface has come, and drops it if that has gone.
    fn look(&self) {
        let interface = self.place.interface();
        let (is_cut, source) = (!self.place.is_connected(), self.place.source());
        let mut state = self.state.lock();
        let before = (state.can_send(), state.interface, state.source);
        self.follow(&mut state, interface, is_cut);
        if std::mem::replace(&mut state.source, source) != source {
            self.log_source(source);
        }
        if (state.can_send(), state.interface, state.source) != before {
            state.news = Some(state.can_send());
            state.watcher.take().into_iter().for_each(Waker::wake);
        }
    }

    fn follow(&self, state: &mut State, interface: Option<u32>, is_cut: bool) {
        let radio = self.place.name();
        if std::mem::replace(&mut state.is_cut, is_cut) != is_cut {
            let news =
                if is_cut { "the interface has lost its carrier" } else { "it has one again" };
            tracing::info!(radio, "{news}");
        }
        if state.socket.is_some() && state.interface == interface {
            return;
        }
        if state.socket.take().is_some() {
            tracing::warn!(radio, "the interface is gone");
        }
        let opened = match interface {
            Some(_) => self.place.open().and_then(UdpSocket::from_std),
            None => Err(io::Error::new(io::ErrorKind::NotFound, "there is no such interface now")),
        };
        match opened {
            Ok(socket) => {
                if std::mem::take(&mut state.failed) {
                    tracing::info!(radio, "the interface is there");
                }
                state.socket = Some(Arc::new(socket.with_marks(self.marks)));
                state.interface = interface;
                state.reader.take().into_iter().for_each(Waker::wake);
            }
            Err(error) => {
                if !std::mem::replace(&mut state.failed, true) {
                    tracing::warn!(radio, %error, "the radio has no socket; trying again quietly");
                }
            }
        }
    }

    fn log_source(&self, source: Option<IpAddr>) {
        let radio = self.place.name();
        match source {
            Some(source) if source.is_unspecified() => {}
            Some(source) => tracing::info!(radio, %source, "packets to the ground leave from here"),
            None => tracing::info!(radio, "no route leads to the ground"),
        }
    }

    fn socket(&self) -> Option<Arc<UdpSocket>> {
        self.state.lock().socket.clone()
    }
}

impl State {
    fn can_send(&self) -> bool {
        self.socket.is_some() && !self.is_cut && self.source.is_some()
    }
}

impl Debug for LateSocket {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LateSocket").field(&self.place.name()).finish()
    }
}

impl Socket for LateSocket {
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let socket = {
            let mut state = self.state.lock();
            if !state.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
                state.reader = Some(cx.waker().clone());
            }
            state.socket.clone()
        };
        socket.map_or(Poll::Pending, |socket| socket.poll_recv(cx, buffers, meta))
    }

    fn try_send(&self, transmit: &Transmit<'_>, dscp: Dscp) -> io::Result<()> {
        let socket = {
            let state = self.state.lock();
            // Without a route, the kernel would send from an address of another interface.
            state.socket.clone().filter(|_| state.can_send())
        };
        match socket {
            Some(socket) => socket.try_send(transmit, dscp),
            None => Err(io::ErrorKind::NetworkDown.into()),
        }
    }

    fn poll_news(&self, cx: &mut Context<'_>) -> Poll<(u8, bool)> {
        let mut state = self.state.lock();
        if let Some(can_send) = state.news.take() {
            return Poll::Ready((0, can_send));
        }
        if !state.watcher.as_ref().is_some_and(|watcher| watcher.will_wake(cx.waker())) {
            state.watcher = Some(cx.waker().clone());
        }
        Poll::Pending
    }

    fn marks(&self) -> bool {
        self.marks
    }

    fn writable(self: Arc<Self>) -> Writable {
        match self.socket() {
            Some(socket) => socket.writable(),
            None => Box::pin(std::future::ready(Ok(()))),
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        let none = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        self.socket().map_or(Ok(none), |socket| socket.local_addr())
    }

    fn max_gso_segments(&self) -> usize {
        self.socket().map_or(1, |socket| socket.max_gso_segments())
    }

    fn max_gro_segments(&self) -> usize {
        MAX_GRO_SEGMENTS
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

    use tokio::sync::Notify;

    use super::*;

    /// An interface with this number, or none with 0.
    struct Changing(Arc<AtomicU32>);

    /// An interface that tells when it has a carrier or not, and a route or not.
    #[derive(Clone, Default)]
    struct Told(Arc<(AtomicBool, AtomicBool, Notify)>);

    impl Told {
        fn set(&self, is_connected: bool, has_route: bool) {
            self.0.0.store(is_connected, SeqCst);
            self.0.1.store(has_route, SeqCst);
            self.0.2.notify_one();
        }
    }

    impl Place for Told {
        fn name(&self) -> &str {
            "told"
        }

        fn interface(&self) -> Option<u32> {
            Some(1)
        }

        fn is_connected(&self) -> bool {
            self.0.0.load(SeqCst)
        }

        fn source(&self) -> Option<IpAddr> {
            self.0.1.load(SeqCst).then_some(Ipv6Addr::UNSPECIFIED.into())
        }

        fn changed(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(self.0.2.notified())
        }

        fn open(&self) -> io::Result<std::net::UdpSocket> {
            std::net::UdpSocket::bind("127.0.0.1:0")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn news_of_the_carrier_and_the_route_count_at_once_and_the_socket_stays() {
        let told = Told::default();
        told.set(true, true);
        let late = LateSocket::start(Box::new(told.clone()), false);
        let (began, address) = (tokio::time::Instant::now(), late.local_addr().unwrap());
        for (is_connected, has_route) in [(false, true), (true, true), (true, false)] {
            told.set(is_connected, has_route);
            let can_send = is_connected && has_route;
            assert_eq!(poll_fn(|cx| late.poll_news(cx)).await, (0, can_send));
            while late.try_send(&transmit(), Dscp::DF).is_ok() != can_send {
                tokio::task::yield_now().await;
            }
            assert_eq!(late.local_addr().unwrap(), address);
        }
        // The first counts at once, and each after it at the next look.
        assert_eq!(began.elapsed(), MIN_LOOK_INTERVAL * 2);
    }

    fn transmit() -> Transmit<'static> {
        Transmit {
            destination: "127.0.0.1:9".parse().unwrap(),
            ecn: None,
            contents: b"here",
            segment_size: None,
            src_ip: None,
        }
    }

    impl Place for Changing {
        fn name(&self) -> &str {
            "changing"
        }

        fn interface(&self) -> Option<u32> {
            Some(self.0.load(SeqCst)).filter(|number| *number > 0)
        }

        fn open(&self) -> io::Result<std::net::UdpSocket> {
            std::net::UdpSocket::bind("127.0.0.1:0")
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_follows_its_interface() {
        let number = Arc::new(AtomicU32::new(0));
        let late = LateSocket::start(Box::new(Changing(number.clone())), false);
        let sent = || late.try_send(&transmit(), Dscp::DF);
        assert_eq!(sent().unwrap_err().kind(), io::ErrorKind::NetworkDown);
        // The reader waits although there is no socket yet.
        let reader = tokio::spawn({
            let late = late.clone();
            async move {
                let (mut bytes, mut meta) = ([0; 100], [RecvMeta::default()]);
                let buffers = &mut [IoSliceMut::new(&mut bytes)];
                poll_fn(|cx| late.poll_recv(cx, buffers, &mut meta)).await.unwrap();
                meta[0].len
            }
        });
        tokio::time::sleep(LOOK_INTERVAL * 3).await;
        number.store(7, SeqCst);
        tokio::time::sleep(LOOK_INTERVAL * 2).await;
        sent().unwrap();
        let first = late.local_addr().unwrap();
        number.store(8, SeqCst);
        tokio::time::sleep(LOOK_INTERVAL * 2).await;
        let second = late.local_addr().unwrap();
        assert_ne!(first, second, "the interface is another one");
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"hello", second).unwrap();
        assert_eq!(reader.await.unwrap(), 5);
        number.store(0, SeqCst);
        tokio::time::sleep(LOOK_INTERVAL * 2).await;
        assert_eq!(sent().unwrap_err().kind(), io::ErrorKind::NetworkDown);
    }
}
