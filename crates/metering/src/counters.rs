//! Counters of a gateway.

use bentpipe_flow::ResetCode;
use bentpipe_link::Class;

pub use crate::count::Count;
use crate::experience::Experience;
use crate::refusals::Refusals;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the gateway started, shared between threads.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Count,)*
            /// Refusals by limits.
            pub refusals: Refusals,
            /// Waiting times of passengers (air).
            pub experience: Experience,
            resets: [Count; ResetCode::ALL.len()],
            classes: [Count; Class::ALL.len()],
        }

        impl Counters {
            /// Returns every count by name, in a fixed order. Resets are named `reset-<code>`,
            /// flows of a class `flows-<class>`, and the effects of limits `refused-<limit>` and
            /// `evicted-<limit>`.
            pub fn all(&self) -> Vec<(String, u64)> {
                let mut all = vec![$((stringify!($name).replace('_', "-"), self.$name.get()),)*];
                for code in ResetCode::ALL {
                    all.push((format!("reset-{}", code.name()), self.resets(code)));
                }
                for class in Class::ALL {
                    all.push((format!("flows-{}", class.name()), self.flows_in(class)));
                }
                all.extend(self.refusals.all());
                all
            }
        }
    };
}

counters! {
    /// Connections accepted from clients (air), or flows from aircraft (ground).
    accepted,
    /// Connections refused because a limit was reached.
    over_limit,
    /// Connections that share the part of sources without a known device, because too many others
    /// wait for theirs to be known.
    admitted_unproven,
    /// Connections with no valid protocol for the listener, or closed before the request was
    /// complete.
    garbage,
    /// Clients with missing or wrong credentials.
    unauthorized,
    /// Flows handed to the relay.
    relayed,
    /// Flows that ended with both directions finished.
    finished,
    /// Flows left for the next process.
    handed_over,
    /// Flows whose class depends on a name that the client states and that is not verified yet.
    claims,
    /// Claims whose name and address the ground gateway found to agree.
    claims_held,
    /// Bytes from TCP to the link.
    to_link_bytes,
    /// Bytes from the link to TCP.
    to_tcp_bytes,
    /// Datagram flows opened.
    datagram_flows,
    /// Datagrams passed to the link.
    datagrams_to_link,
    /// Bytes in datagrams passed to the link.
    datagram_bytes_to_link,
    /// Datagrams received from the link and passed on.
    datagrams_from_link,
    /// Bytes in datagrams received from the link and passed on.
    datagram_bytes_from_link,
    /// Datagrams dropped because a socket, or the buffer of a new flow, was full.
    datagrams_dropped,
    /// Intercepted datagrams that the kernel dropped because this gateway read too slowly (air).
    datagrams_overrun,
    /// Datagrams dropped because their passenger exceeds its ceiling in the network class.
    datagrams_policed,
    /// Connections demoted from the network class because their passenger exceeds its ceiling.
    streams_demoted,
    /// Datagrams dropped because they are too large for the link.
    datagrams_too_large,
    /// Datagrams that cannot be assigned: unknown contexts, unknown senders, invalid headers.
    datagrams_unknown,
    /// Restorations of the interception rules after another program removed them (air).
    rules_restored,
    /// Packets of clients that were refused because their IP protocol, or their ICMP type, is not
    /// carried.
    ip_refused,
    /// QUIC flows refused by configuration.
    quic_rejected,
    /// DNS queries of aircraft that were answered or forwarded (ground).
    names_asked,
    /// DNS queries that no name server answered.
    names_failed,
    /// DNS queries whose answer was withheld because it contained a private address.
    names_private,
    /// DNS answers pushed to aircraft that connected with an empty cache (ground).
    names_pushed,
    /// Bytes of pushed DNS answers.
    names_pushed_bytes,
    /// ICMP messages sent to clients (air), or errors passed to aircraft (ground).
    icmp_sent,
    /// Pages that the ground gateway fetched together with their objects.
    pages,
    /// Bytes of pages and their objects that the ground gateway sent, before compression.
    pages_bytes,
    /// Pages that turned out to be downloads, which are passed on (ground).
    downloads,
    /// Bytes of downloads, which are not included in those of pages.
    downloads_bytes,
    /// Objects of pages promised to the air gateway.
    objects_promised,
    /// Promised objects that were not sent (ground) or not received (air) after all.
    objects_declined,
    /// Promised objects cancelled because they were cached on board or there was no room.
    objects_cancelled,
    /// Pushed objects requested by passengers. Each saved a round trip, or part of one.
    objects_used,
    /// Pushed objects that expired without a request.
    objects_unused,
    /// Bytes of pushed objects.
    pushed_bytes,
    /// Bytes of pushed objects that were not requested.
    wasted_bytes,
    /// Requests of pages that were not promised, mostly made by scripts.
    not_foreseen,
    /// TLS connections terminated here, for the operator's sites.
    sites,
    /// HTTP requests read here: the eight kinds below, and those in progress.
    http_requests,
    /// HTTP requests answered from the cache with a fresh object.
    http_hits,
    /// HTTP requests answered from the cache with a stale object, during revalidation or because
    /// nothing else was available.
    http_stale_hits,
    /// HTTP requests answered from the cache after the origin confirmed the object.
    http_validated,
    /// HTTP requests answered by another request's fetch in progress.
    http_collapsed,
    /// HTTP requests that the cache could have answered, but that were fetched.
    http_misses,
    /// HTTP requests that no cache may answer, passed on.
    http_passed,
    /// HTTP requests for which the origin gave no response.
    http_failed,
    /// HTTP requests refused because they were ambiguous or too long.
    http_refused,
    /// Bytes of HTTP bodies sent from the cache.
    http_bytes_from_cache,
    /// Bytes of HTTP bodies that did not cross the link for the request they answered: from the
    /// cache, or from another request's fetch.
    http_bytes_saved,
    /// HTTP requests answered without waiting for the ground gateway.
    http_round_trips_saved,
    /// Objects of the HTTP cache kept only in memory because too many writes were pending.
    http_unwritten,
    /// Objects stored by the HTTP cache, including preloaded ones.
    http_stored,
    /// Objects evicted from the HTTP cache to make room.
    http_evicted,
    /// Objects of the portal's content that were fetched and pinned.
    preload_stored,
    /// Objects of the portal's content that were cached and confirmed by their origins.
    preload_confirmed,
    /// Objects of the portal's content neither stored nor confirmed when a run ended.
    preload_failed,
    /// Bytes of the portal's content that were stored.
    preload_bytes,
    /// ICMP messages suppressed by the rate limit.
    icmp_held_back,
    /// Answers of the plain DNS listener that could not be sent.
    dns_unsent,
    /// Datagrams at the link's socket that are not from the peer, dropped unread.
    link_strangers,
    /// Datagrams of aircraft that a shard of the link was too slow for.
    link_overflow_aircraft,
    /// Handshakes that a shard of the link was too slow for.
    link_overflow_handshakes,
}

impl Counters {
    /// Counts a flow that ended with `code`.
    pub fn count_reset(&self, code: ResetCode) {
        self.resets[usize::from(code.to_u8())].add(1);
    }

    /// Number of flows that ended with `code`.
    pub fn resets(&self, code: ResetCode) -> u64 {
        self.resets[usize::from(code.to_u8())].get()
    }

    /// Counts a flow that begins in `class`.
    pub fn count_class(&self, class: Class) {
        self.classes[usize::from(class.to_u8())].add(1);
    }

    /// Number of flows that began in `class`.
    pub fn flows_in(&self, class: Class) -> u64 {
        self.classes[usize::from(class.to_u8())].get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_is_documented() {
        let page = include_str!("../../../docs/status.md");
        for (name, _) in Counters::default().all() {
            // Counts of limits have their own test, see `refusals`.
            let families = ["reset-", "flows-", "refused-", "evicted-"];
            if !families.iter().any(|family| name.starts_with(family)) {
                let row = format!("| `{}` | ", name.replace('-', "_"));
                assert!(page.contains(&row), "docs/status.md lacks {name}");
            }
        }
    }
}
