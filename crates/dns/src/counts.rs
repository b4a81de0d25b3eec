//! Counts of events.

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts since the resolver was made.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// Every count by its name, in a fixed order.
            pub fn all(&self) -> Vec<(String, u64)> {
                vec![$((stringify!($name).replace('_', "-"), self.$name),)*]
            }
        }
    };
}

counts! {
    /// Queries that could be read.
    queries,
    /// Answered on board, with what still counted.
    hits,
    /// Answered on board, with what was over and is asked for anew.
    stale,
    /// Answers of both kinds that said that there is no such name or record.
    negative,
    /// Answered on board: it could not be found out a moment ago.
    failed,
    /// Answered on board with a private address that stands for the name.
    instant,
    /// Asked the ground for.
    missed,
    /// Waited for a question that was under way already.
    collapsed,
    /// Came again while their client waited for the answer: nothing was done.
    repeated,
    /// Refused: their client sent too many.
    refused,
    /// Told that there is no room, or no more: too much was under way, of their client too.
    crowded,
    /// Told at once that the ground cannot be reached.
    cut_off,
    /// Messages that were no such queries as are answered.
    unusable,
    /// Questions asked ahead because many want the answer.
    prefetched,
    /// Prefetched answers that were used.
    prefetch_used,
    /// And those whose answer nobody wanted.
    prefetch_wasted,
    /// Answers that the ground sent unasked.
    pushed,
    /// Pushed answers that were used.
    push_used,
    /// And those that nobody wanted, or that were known already.
    push_wasted,
    /// Bytes of all of them.
    push_bytes,
    /// Questions sent again because no answer came.
    sent_again,
    /// Questions that the ground did not answer.
    unanswered,
    /// Messages of the ground that answered no question of ours.
    unasked,
    /// Bytes of questions that were sent to the ground.
    bytes_to_ground,
    /// Bytes of the ground's answers.
    bytes_from_ground,
    /// Bytes of questions and answers that did not cross the link for the query that they answered.
    bytes_saved,
    /// Queries answered without waiting for the ground.
    round_trips_saved,
}
