//! The way back to clients whose packets were intercepted: answers that come from where they sent to, and ICMP
//! errors.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bentpipe_link::{Class, Host};

use super::datagrams::{Back, Key, Problem};
use super::echo;
use super::packet::{self, Message, Original};
use super::raw::{Raw, own_address};
use super::sent::Sent;
use crate::bucket::Bucket;
use crate::counters::Counters;
use crate::net::ip::{UDP, is_echo};

/// ICMP messages to clients per second, and a second's worth at a stretch (RFC 4443 section
/// 2.4 (f)): a cabin's browsers refused at once, 300 kbit/s of the cabin's radio.
const ICMP_PER_SECOND: f64 = 500.0;

/// Rate for one client: a page's worth of destinations.
const ICMP_PER_SECOND_EACH: f64 = 50.0;

/// Buckets that clients share: at 64 bytes each, 32 KiB.
const SHARES: usize = 512;

/// The way back to clients whose packets were intercepted.
pub struct Answers {
    raw: Raw,
    counters: Arc<Counters>,
    bucket: Bucket,
    shares: Shares,
}

/// Share of each client in the messages. Clients are spread over a fixed number of buckets by a
/// hash that they cannot know, so a flood takes from few others.
struct Shares {
    hash: RandomState,
    buckets: [Bucket; SHARES],
}

impl Default for Shares {
    fn default() -> Self {
        let buckets = std::array::from_fn(|_| Bucket::new(ICMP_PER_SECOND_EACH, 1.0));
        Self { hash: RandomState::new(), buckets }
    }
}

impl Shares {
    fn take(&self, client: IpAddr) -> bool {
        self.buckets[self.hash.hash_one(client) as usize % SHARES].take()
    }
}

impl Answers {
    /// They leave by `raw`.
    pub fn new(raw: Raw, counters: Arc<Counters>) -> Self {
        Self { raw, counters, bucket: Bucket::new(ICMP_PER_SECOND, 1.0), shares: Shares::default() }
    }

    /// Sends the ICMP error `message` about `sent`, unless there were too many.
    pub fn say(&self, key: &Key, sent: &Sent<'_>, message: Message) {
        // Its own first: what one client is denied takes nothing from all.
        if !self.shares.take(key.client.ip()) || !self.bucket.take() {
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
        if packet.is_some_and(|packet| self.raw.send(&packet, key.client).is_ok()) {
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
        packet.is_some_and(|packet| self.raw.send(&packet, key.client).is_ok())
    }

    fn explain(&self, key: &Key, sent: &Sent<'_>, problem: Problem) {
        let message = match problem {
            Problem::TooLarge { most_payload } => Some(Message::TooBig { most_payload }),
            Problem::Limit => Some(Message::HostUnreachable),
            Problem::Ended(code) => Message::of_reset(code, key.protocol),
            Problem::Icmp(error) => Some(Message::Relayed(error)),
        };
        if let Some(message) = message {
            self.say(key, sent, message);
        }
    }
}

/// Intercepted packets go to addresses, never to names or services.
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
    async fn one_client_leaves_messages_for_others() {
        let shares = Shares::default();
        let take = |client: [u8; 4]| shares.take(client.into());
        assert_eq!(
            (0..1000).filter(|_| take([10, 0, 0, 1])).count(),
            ICMP_PER_SECOND_EACH as usize
        );
        // Ten or more of 200 others have its bucket with a chance of 1 in 10^12.
        let served = (2..202).filter(|n| take([10, 0, 0, *n])).count();
        assert!(served > 190, "{served}");
    }
}
