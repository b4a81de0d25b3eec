//! Event counters.

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since the resolver was created.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// All counters with their names, in a fixed order.
            pub fn all(&self) -> Vec<(String, u64)> {
                vec![$((stringify!($name).replace('_', "-"), self.$name),)*]
            }
        }
    };
}

counts! {
    /// Queries that were parsed.
    queries,
    /// Queries answered from the cache with a fresh answer.
    hits,
    /// Queries answered from the cache with a stale answer, which is refreshed.
    stale,
    /// Queries of both kinds whose answer denied the name or the record.
    negative,
    /// Queries answered with a cached failure.
    failed,
    /// Queries answered with a fake-IP address.
    instant,
    /// Queries sent to the ground.
    missed,
    /// Queries that joined a pending query.
    collapsed,
    /// Duplicate datagrams while the client waited: ignored.
    repeated,
    /// Queries refused because the client sent too many.
    refused,
    /// Queries that found no room or lost their room, the client's own limit included.
    crowded,
    /// Queries failed at once because the ground is unreachable.
    cut_off,
    /// Messages that are not supported queries.
    unusable,
    /// Queries sent ahead for popular names.
    prefetched,
    /// Prefetched answers that were used.
    prefetch_used,
    /// Prefetched answers that were never used.
    prefetch_wasted,
    /// Answers pushed by the ground.
    pushed,
    /// Pushed answers that were used.
    push_used,
    /// Pushed answers that were never used, or that were already cached.
    push_wasted,
    /// Bytes of all pushed answers.
    push_bytes,
    /// Queries retransmitted because no answer arrived.
    sent_again,
    /// Queries that the ground did not answer.
    unanswered,
    /// Messages from the ground that match no pending query.
    unasked,
    /// Bytes of queries sent to the ground.
    bytes_to_ground,
    /// Bytes of answers from the ground.
    bytes_from_ground,
    /// Bytes of queries and answers that did not cross the link because the cache answered.
    bytes_saved,
    /// Queries answered without waiting for the ground.
    round_trips_saved,
}
