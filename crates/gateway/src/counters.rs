//! Counters of a gateway.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bentpipe_link::{Class, ResetCode};

use crate::refusals::Refusals;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the gateway started; cheap to share and to bump.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Count,)*
            /// Refusals by limits.
            pub refusals: Refusals,
            resets: [Count; ResetCode::ALL.len()],
            classes: [Count; Class::ALL.len()],
        }

        impl Counters {
            /// Every count by its name, in a fixed order; resets as `reset-<code>`, flows of a
            /// class as `flows-<class>`, what limits took as `refused-<limit>` and `evicted-<limit>`.
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
    /// Connections taken from clients (air) or flows from aircraft (ground).
    accepted,
    /// Connections refused because a limit was reached.
    over_limit,
    /// Connections that spoke no protocol of the listener, or stopped half-way.
    garbage,
    /// Clients that gave no or wrong credentials.
    unauthorized,
    /// Flows handed to the relay.
    relayed,
    /// Flows that ended with both directions finished.
    finished,
    /// Flows whose class depends on a name that the client says and nobody has verified yet.
    claims,
    /// Claims whose name the ground found to agree with the address.
    claims_held,
    /// Bytes from TCP to the link.
    to_far_bytes,
    /// Bytes from the link to TCP.
    to_tcp_bytes,
    /// Flows of datagrams opened.
    datagram_flows,
    /// Datagrams given to the link.
    datagrams_to_far,
    /// Bytes in them.
    datagram_bytes_to_far,
    /// Datagrams that came by the link and were passed on.
    datagrams_from_far,
    /// Bytes in them.
    datagram_bytes_from_far,
    /// Datagrams dropped because a socket or the flow's beginning could take no more.
    datagrams_dropped,
    /// Datagrams dropped because their passenger sends more than one may in the network's class.
    datagrams_policed,
    /// Connections that lost the network's class because their passenger sends more than one may.
    streams_demoted,
    /// Datagrams dropped because the link carries none so large.
    datagrams_too_large,
    /// Datagrams that were not for anybody here: unknown contexts, strangers, broken heads.
    datagrams_unknown,
    /// Packets of clients that were refused because their IP protocol, or what they ask by ICMP, is
    /// not carried.
    ip_refused,
    /// QUIC that was refused, as the config says.
    quic_rejected,
    /// DNS questions of aircraft that were answered or forwarded (ground).
    names_asked,
    /// Questions that no name server answered.
    names_failed,
    /// DNS questions whose answer was withheld because it had a private address.
    names_private,
    /// DNS answers that were sent unasked to aircraft that began without knowing anything (ground).
    names_pushed,
    /// Bytes of those answers.
    names_pushed_bytes,
    /// ICMP messages sent to clients (air), or errors passed to aircraft (ground).
    icmp_sent,
    /// Pages that the ground fetched ahead with what they will ask for.
    pages,
    /// Bytes of pages and their objects that the ground gave to the link, before they were packed.
    pages_bytes,
    /// Pages that turned out to be downloads, which are passed on (ground).
    downloads,
    /// Bytes of downloads, which are not among those of pages.
    downloads_bytes,
    /// Objects of pages that were promised to the cabin.
    objects_promised,
    /// Promised objects of which nothing was sent (ground) or came (air) after all.
    objects_declined,
    /// Promised objects that were cancelled, because they were on board or there was no room for them.
    objects_cancelled,
    /// Pushed objects that passengers asked for: a round trip was saved for each, or a share of one.
    objects_used,
    /// Pushed objects that nobody asked for in their time.
    objects_unused,
    /// Bytes of pushed objects.
    pushed_bytes,
    /// Those of them that nobody asked for.
    wasted_bytes,
    /// Requests beside pages that nobody had promised: scripts' mostly.
    not_foreseen,
    /// TLS connections that ended here, being for a site of the operator's.
    sites,
    /// HTTP requests that were read here: the eight kinds below, and those under way.
    http_requests,
    /// HTTP requests answered from the cache, fresh.
    http_hits,
    /// HTTP requests answered from the cache, stale: meanwhile, or because nothing else could be had.
    http_stale_hits,
    /// HTTP requests answered from the cache once the origin had confirmed it.
    http_validated,
    /// HTTP requests answered by a fetch that was under way for somebody else.
    http_collapsed,
    /// HTTP requests that could have been in the cache and were fetched.
    http_misses,
    /// HTTP requests that no cache answers, passed on.
    http_passed,
    /// HTTP requests for which the origin gave no answer.
    http_failed,
    /// HTTP requests refused because they could be read in two ways, or were too long.
    http_refused,
    /// Bytes of HTTP bodies given from the cache.
    http_bytes_from_cache,
    /// Bytes of HTTP bodies that did not cross the link for the request they answered: those from the
    /// cache, and those that were fetched for somebody else.
    http_bytes_saved,
    /// HTTP requests answered without waiting for the far side of the link.
    http_round_trips_saved,
    /// Heads of requests that crossed the link packed and were answered (air).
    http_heads_packed,
    /// Bytes that they were shorter by.
    http_head_bytes_saved,
    /// Objects of the HTTP cache that stayed in memory alone because too much waited for the disk.
    http_unwritten,
    /// Objects that the HTTP cache stored, those that were fetched ahead included.
    http_stored,
    /// Objects that it let go because others wanted their place.
    http_evicted,
    /// Objects of the portal's content that were fetched and pinned.
    preload_stored,
    /// Objects of it that were here, and that their origins confirmed.
    preload_confirmed,
    /// Objects of it that had been neither stored nor confirmed when a run ended.
    preload_failed,
    /// Bytes of those that were stored.
    preload_bytes,
    /// ICMP messages not sent because there were too many.
    icmp_held_back,
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

/// One number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// Takes over what another has counted since the start.
    pub fn follow(&self, counted: u64) {
        self.0.fetch_max(counted, Relaxed);
    }

    /// The number so far.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_count_is_explained() {
        let page = include_str!("../../../docs/status.md");
        for (name, _) in Counters::default().all() {
            // Those of limits have a test of their own, see `refusals`.
            let families = ["reset-", "flows-", "refused-", "evicted-"];
            if !families.iter().any(|family| name.starts_with(family)) {
                let row = format!("| `{}` | ", name.replace('-', "_"));
                assert!(page.contains(&row), "docs/status.md lacks {name}");
            }
        }
    }
}
