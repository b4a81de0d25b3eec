//! Times at which packets arrived, by the kernel's clock.
//!
//! A gateway that waits for the processor reads its packets late. The time of reading would make such a
//! wait look like a queue of the path, and packets that are read together look like a faster path.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum age of a packet. A greater one means that somebody has set the clock.
const MAX_AGE: Duration = Duration::from_secs(1);

/// Arrival times on the clock of an end. They never run backwards.
#[derive(Debug, Default)]
pub struct ArrivalTimes {
    /// Latest time that the end knows.
    latest: Duration,
    now: Duration,
    /// The same on the kernel's clock, since the Unix epoch.
    wall: Duration,
}

impl ArrivalTimes {
    /// Notes that packets are read at `now`.
    pub fn read_at(&mut self, now: Duration) {
        self.now = now;
        self.wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    }

    /// Notes that the end knows `now`, so that nothing arrives before it any more.
    pub fn pass(&mut self, now: Duration) {
        self.latest = self.latest.max(now);
    }

    /// Arrival time of a packet with the kernel's `timestamp`; the time of reading if there is none.
    pub fn of(&mut self, timestamp: Option<Duration>) -> Duration {
        let age = timestamp.and_then(|at| self.wall.checked_sub(at)).filter(|age| *age <= MAX_AGE);
        self.pass(self.now.saturating_sub(age.unwrap_or_default()));
        self.latest
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Context;

    use quinn_udp::RecvMeta;

    use super::super::receive::{Buffers, RECV_BUFFERS};
    use super::super::{Socket, UdpSocket};
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// Packets that are read at 500 ms, or 10 s on the kernel's clock.
    fn times() -> ArrivalTimes {
        ArrivalTimes { latest: ms(0), now: ms(500), wall: ms(10_000) }
    }

    #[test]
    fn a_packet_arrived_when_the_kernel_had_it() {
        let mut times = times();
        assert_eq!(times.of(Some(ms(9_960))), ms(460));
        assert_eq!(times.of(Some(ms(9_990))), ms(490));
        assert_eq!(times.of(None), ms(500));
    }

    #[test]
    fn time_never_runs_backwards() {
        let mut times = times();
        times.pass(ms(480));
        assert_eq!(times.of(Some(ms(9_960))), ms(480));
        assert_eq!(times.of(Some(ms(9_990))), ms(490));
        assert_eq!(times.of(Some(ms(9_970))), ms(490), "from another socket");
    }

    #[test]
    fn a_clock_that_was_set_says_nothing() {
        assert_eq!(times().of(Some(ms(10_001))), ms(500));
        assert_eq!(times().of(Some(ms(8_999))), ms(500));
    }

    #[tokio::test]
    async fn the_kernel_tells_when_a_packet_came() {
        let bound = || std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let (own, peer) = (bound(), bound());
        let to = own.local_addr().unwrap();
        let socket = UdpSocket::from_std(own).unwrap();
        let mut buffers = Buffers::new(&socket);
        // The kernel begins to keep times a moment after the first socket asks for them.
        for _ in 0..1000 {
            let before = SystemTime::now();
            peer.send_to(b"here", to).unwrap();
            let sent = SystemTime::now();
            std::thread::sleep(ms(1));
            let mut meta = [RecvMeta::default(); RECV_BUFFERS];
            let receive =
                |cx: &mut Context<'_>| socket.poll_recv(cx, &mut buffers.slices(), &mut meta);
            assert_eq!(poll_fn(receive).await.unwrap(), 1);
            let came = UNIX_EPOCH + meta[0].timestamp.expect("the kernel has a time");
            assert!(came >= before);
            if came <= sent {
                return;
            }
        }
        panic!("each packet came when it was read");
    }
}
