//! The memory of a hub, which all its sessions share.
//!
//! Each session has bounds that suit a lone aircraft; the hub has less for all together. A session
//! may hold a third as much as is free (dynamic thresholds: Choudhury and Hahne, "Dynamic queue
//! length thresholds for shared-memory packet switches", 1998). So a lone aircraft may hold a quarter
//! of the memory, `n` busy ones `1 / (n + 3)` each, and an aircraft that begins to use its link always
//! finds three times as much free as any other holds.
//!
//! | a session holds | effect |
//! |---|---|
//! | seven eighths of its threshold | its flows are lent no more: writers wait, peers get no more credit |
//! | its threshold | it sends no more than the reserves of its open flows before reports arrive |
//!
//! In addition to the memory, each open flow may hold its reserve in each direction; the account
//! leaves one reserve of each open flow out. Credit that a peer already has is not taken back.
//!
//! If seven eighths are used, sessions free what they keep for repairs alone. If that does not
//! suffice, silent sessions end, the longest silent one first, so that the others do not wait for
//! vanished aircraft.
//!
//! The shards of a hub have one account. Each shard ends its own silent sessions, the longest silent
//! one of the shard first; if memory is still short then, the other shards do the same. Each shard
//! may have one session that its writers have filled since the last count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::flow::Lending;
use crate::key::PublicKey;

/// Share of the memory beyond which memory is recovered: seven eighths.
const SHORT: (u64, u64) = (7, 8);

/// Divisor of the free memory for the threshold of a session.
const FREE_PART: u64 = 3;

/// Share of its threshold from which on a session is lent no more. The rest is for bytes that its
/// writers handed over and that the link has yet to send.
const LOANS: (u64, u64) = (7, 8);

/// Interval of the search for memory to recover during a shortage.
const INTERVAL: Duration = Duration::from_secs(1);

/// The hub's account of memory. Clones share it.
#[derive(Debug, Clone)]
pub struct Account(Arc<Sums>);

#[derive(Debug)]
struct Sums {
    max: AtomicU64,
    used: AtomicU64,
}

impl Default for Account {
    fn default() -> Self {
        Self(Arc::new(Sums { max: AtomicU64::new(u64::MAX), used: AtomicU64::new(0) }))
    }
}

/// A shard's view of the account, and its search for memory to recover.
#[derive(Debug)]
pub struct Budget {
    account: Account,
    next_look: Duration,
}

impl Budget {
    pub fn new(account: Account) -> Self {
        Self { account, next_look: Duration::ZERO }
    }

    /// Sets the memory of all sessions together.
    pub fn set_max(&mut self, max: u64) {
        self.account.0.max.store(max, SeqCst);
    }

    /// Memory of all sessions together, and its use.
    pub fn sums(&self) -> (u64, u64) {
        let Sums { max, used } = &*self.account.0;
        (max.load(SeqCst), used.load(SeqCst))
    }

    /// Counts a session that held `before` bytes beyond its reserves and now holds `now`.
    pub fn settle(&mut self, before: u64, now: u64) {
        if now != before {
            // Wraps around: the sum is never negative, because each session adds first.
            self.account.0.used.fetch_add(now.wrapping_sub(before), SeqCst);
        }
    }

    /// Memory that a session which holds `held` bytes beyond its reserves may use in addition.
    pub fn lending(&self, held: u64) -> Lending {
        let (max, used) = self.sums();
        let threshold = max.saturating_sub(used) / FREE_PART;
        if held >= threshold {
            Lending::ReservesOnly
        } else if held >= threshold / LOANS.1 * LOANS.0 {
            Lending::NoLoans
        } else {
            Lending::Free
        }
    }

    /// Returns `true` if memory should be recovered.
    pub fn is_short(&self) -> bool {
        let (max, used) = self.sums();
        used > max / SHORT.1 * SHORT.0
    }

    /// Time of the next search for memory to recover, if one is needed.
    pub fn next_timeout(&self) -> Option<Duration> {
        self.is_short().then_some(self.next_look)
    }

    /// Returns `true` if a search for memory to recover is due.
    pub fn is_due(&mut self, now: Duration) -> bool {
        let is_due = self.next_timeout().is_some_and(|at| at <= now);
        if is_due {
            self.next_look = now + INTERVAL;
        }
        is_due
    }
}

/// Refusals for memory since they were taken last.
#[derive(Debug, Default)]
pub struct Shortage {
    /// Times that a writer had to wait.
    pub refused: u64,
    /// Silent sessions that ended.
    pub ended: u64,
    /// The last aircraft whose writer had to wait.
    pub newcomer: Option<PublicKey>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets `count` sessions take as much as they are lent, in turns of `step` bytes.
    fn fill(budget: &mut Budget, held: &mut [u64], step: u64) {
        while held.iter().any(|held| budget.lending(*held) == Lending::Free) {
            for held in &mut *held {
                if budget.lending(*held) == Lending::Free {
                    budget.settle(*held, *held + step);
                    *held += step;
                }
            }
        }
    }

    #[test]
    fn busy_sessions_never_hold_more_than_there_is_and_leave_room_for_others() {
        for count in [1, 10, 1_000] {
            let mut budget = Budget::new(Account::default());
            budget.set_max(64 << 20);
            let mut held = vec![0; count];
            fill(&mut budget, &mut held, 1_000);
            let sum: u64 = held.iter().sum();
            assert!(sum <= 64 << 20, "{sum}");
            let (least, most) = (held.iter().min().unwrap(), held.iter().max().unwrap());
            assert!(most - least <= 1_000, "{least} to {most}");
            let mut newcomer = [0];
            fill(&mut budget, &mut newcomer, 1_000);
            assert!(newcomer[0] + 1_000 >= most / 2, "{} of {most}", newcomer[0]);
        }
    }

    #[test]
    fn a_lone_session_gets_a_fifth_before_its_loans_end() {
        let mut budget = Budget::new(Account::default());
        budget.set_max(64 << 20);
        let mut held = [0];
        fill(&mut budget, &mut held, 1_000);
        assert!((13 << 20..16 << 20).contains(&held[0]), "{}", held[0]);
        budget.settle(0, 40 << 20);
        assert_eq!(budget.lending(held[0]), Lending::ReservesOnly);
    }

    #[test]
    fn the_sum_is_right_after_shards_settled_at_once() {
        let account = Account::default();
        Budget::new(account.clone()).set_max(8_000);
        let shard = |account: Account| {
            move || {
                let mut budget = Budget::new(account);
                for _ in 0..10_000 {
                    budget.settle(0, 5_000);
                    budget.settle(5_000, 0);
                }
                budget.settle(0, 3_000);
            }
        };
        std::thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(shard(account.clone()))));
        });
        assert_eq!(Budget::new(account).sums(), (8_000, 6_000));
    }
}
