//! Packets to clients whose packets were intercepted: answers from the original destination's
//! address, and ICMP errors.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bentpipe_flow::Host;
use bentpipe_link::Class;
use bentpipe_net::ip::{UDP, is_echo};

use super::client_packet::Sent;
use super::datagrams::{Back, Key, Problem};
use super::echo;
use super::identity::Whose;
use super::packet::{self, Message, Original};
use super::raw::{Raw, own_address};
use bentpipe_metering::counters::Counters;
use bentpipe_relay::bucket::RateLimit;

/// Maximum ICMP messages to clients per second, with a burst of one second's worth (RFC 4443
/// section 2.4 (f)). This suffices if a cabin's browsers are refused at once, and takes 300 kbit/s
/// of the cabin's radio.
const ICMP_PER_SECOND: u32 = 500;

/// Maximum for one passenger, and for all sources without a known device together: enough for a
/// page's destinations.
const ICMP_PER_SECOND_EACH: u32 = 50;

/// Burst of both limits, in seconds of the rate.
const ICMP_BURST_SECONDS: u32 = 1;

/// Number of buckets that passengers share: 512 × 80 bytes = 40 KiB.
const SHARES: usize = 512;

/// Sender of packets to clients whose packets were intercepted.
pub struct Answers {
    raw: Raw,
    /// Passenger at an address; `None` if its device is unknown.
    whose: Box<dyn Fn(IpAddr) -> Option<Whose> + Send + Sync>,
    counters: Arc<Counters>,
    bucket: RateLimit,
    shares: Shares,
}

/// Per-passenger limits of messages. A secret hash assigns passengers to a fixed number of buckets,
/// so a flood affects few others.
struct Shares {
    hash: RandomState,
    buckets: [RateLimit; SHARES],
}

impl Default for Shares {
    fn default() -> Self {
        let buckets =
            std::array::from_fn(|_| RateLimit::new(ICMP_PER_SECOND_EACH, ICMP_BURST_SECONDS));
        Self { hash: RandomState::new(), buckets }
    }
}

impl Shares {
    fn take(&self, whose: Option<Whose>) -> bool {
        self.buckets[self.hash.hash_one(whose) as usize % SHARES].take()
    }
}

impl Answers {
    /// Creates a sender that uses `raw`. `whose` returns the passenger at an address, or `None` if
    /// its device is unknown.
    pub fn new(
        raw: Raw,
        counters: Arc<Counters>,
        whose: impl Fn(IpAddr) -> Option<Whose> + Send + Sync + 'static,
    ) -> Self {
        let (bucket, shares) =
            (RateLimit::new(ICMP_PER_SECOND, ICMP_BURST_SECONDS), Shares::default());
        Self { raw, whose: Box::new(whose), counters, bucket, shares }
    }

    fn send(&self, packet: &[u8], client: SocketAddr) -> bool {
        self.raw.send(packet, client, (self.whose)(client.ip()).is_none()).is_ok()
    }

    /// Sends the ICMP error `message` about `sent`, subject to the rate limits.
    pub fn say(&self, key: &Key, sent: &Sent<'_>, message: Message) {
        // The passenger's own limit comes first, so that its suppressed messages do not use the
        // common limit.
        if !self.shares.take((self.whose)(key.client.ip())) || !self.bucket.take() {
            self.counters.icmp_held_back.add(1);
            return;
        }
        let Some(target) = destination(key) else { return };
        let source = match message {
            Message::Relayed(error) => Ok(error.from),
            _ => own_address(key.client.ip()),
        };
        let original = Original {
            protocol: key.protocol,
            client: key.client,
            target,
            traffic_class: sent.traffic_class,
            payload: sent.payload,
            cut_bytes: sent.cut_bytes,
        };
        let packet = source.ok().and_then(|source| packet::error(source, &original, message));
        if packet.is_some_and(|packet| self.send(&packet, key.client)) {
            self.counters.icmp_sent.add(1);
        }
    }
}

impl Back for Answers {
    fn deliver(&self, key: &Key, class: Class, payload: &[u8]) -> bool {
        let mark = class.dscp().traffic_class(0);
        let packet = destination(key).and_then(|from| {
            let (there, here) = (from.ip(), key.client.ip());
            match key.protocol {
                UDP => packet::udp(from, key.client, mark, payload),
                echo if is_echo(echo) => {
                    let answer = echo::answer(payload, key.client.port(), there, here)?;
                    packet::raw(there, here, echo, mark, &answer)
                }
                other => packet::raw(there, here, other, mark, payload),
            }
        });
        packet.is_some_and(|packet| self.send(&packet, key.client))
    }

    fn explain(&self, key: &Key, sent: &Sent<'_>, problem: Problem) {
        let message = match problem {
            Problem::TooLarge { max_payload } => Some(Message::TooBig { max_payload }),
            Problem::Limit => Some(Message::HostUnreachable),
            Problem::Ended(code) => Message::of_reset(code, key.protocol),
            Problem::Icmp(error) => Some(Message::Relayed(error)),
        };
        if let Some(message) = message {
            self.say(key, sent, message);
        }
    }
}

/// Intercepted packets are addressed to IP addresses, never to names or services.
fn destination(key: &Key) -> Option<SocketAddr> {
    match key.target.host {
        Host::Ip(ip) => Some(SocketAddr::new(ip, key.target.port)),
        Host::Name(_) | Host::Service(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_passenger_leaves_messages_for_others() {
        let shares = Shares::default();
        let device = Some(Whose::Device("02:00:00:00:00:01".parse().unwrap()));
        let most = ICMP_PER_SECOND_EACH as usize;
        assert_eq!((0..1000).filter(|_| shares.take(device)).count(), most);
        // All invented sources share one limit.
        assert_eq!((0..1000).filter(|_| shares.take(None)).count(), most);
        let take = |client: [u8; 4]| shares.take(Some(Whose::of_address(client.into())));
        // The chance that ten or more of 200 others share its bucket is 1 in 10^12.
        let served = (2..202).filter(|n| take([10, 0, 0, *n])).count();
        assert!(served > 190, "{served}");
    }
}
