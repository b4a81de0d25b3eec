//! Accounts over days, crashes and clocks.

use proptest::prelude::*;

use super::*;

const LIMIT: u64 = 300_000;
const DAY: u64 = FIRST_DAY + 300;

fn account(day: u64, reserved_bytes: u64) -> Account {
    Account { day, reserved_bytes }
}

#[test]
fn a_day_begins_with_what_may_still_be_spent() {
    let chunk = chunk_of(LIMIT);
    let opened = |stored, day| Account::opened(stored, chunk, day);
    assert_eq!(opened(None, DAY), account(DAY, 0));
    let stored = Some(account(DAY, 200_000));
    assert_eq!(opened(stored, DAY), account(DAY, 200_000));
    assert_eq!(opened(stored, DAY + 1), account(DAY + 1, 3 * chunk));
    assert_eq!(opened(stored, DAY + 2), account(DAY + 2, 3 * chunk));
    assert_eq!(opened(stored, DAY - 1), account(DAY, 200_000), "a clock that is late");
    let early = Some(account(3, 200_000));
    assert_eq!(opened(early, DAY), account(DAY, 200_000), "a clock that was wrong");

    let running = account(DAY, 200_000);
    assert_eq!(running.on(DAY, 1, false), running);
    assert_eq!(running.on(DAY - 1, 1, true), running);
    assert_eq!(running.on(DAY + 1, 1000, false), account(DAY + 1, 1000));
    assert_eq!(running.on(DAY + 1, 1000, true), account(DAY + 1, 200_000));
}

#[test]
fn accounts_outlive_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("air.state.days");
    let open = || Keeper {
        file: file.clone(),
        accounts: Mutex::new(Accounts::load(&file).unwrap()),
        radios: Mutex::default(),
    };
    let chunk = chunk_of(LIMIT);
    let mut all = 0;
    // Each process reserves a chunk and crashes.
    for start in 1..20 {
        let quota = Arc::new(open()).quota("LTE", LIMIT).unwrap();
        all += quota.left();
        assert!(all <= LIMIT);
        let reserved = (start * chunk).min(LIMIT);
        let stored = Accounts::load(&file).unwrap().0["LTE"];
        assert_eq!((all, stored.reserved_bytes), (reserved, reserved));
        assert_eq!(stored.day, today());
    }
    assert_eq!(all, LIMIT);
}

#[test]
fn a_strange_file_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("air.state.days");
    std::fs::write(&file, "my notes").unwrap();
    let error = Accounts::load(&file).unwrap_err().to_string();
    assert!(error.contains("does not hold the use of daily limits"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "my notes");
}

/// A radio between its keeper, its users and the ground.
struct Radio {
    stored: Option<Account>,
    day: u64,
    /// Bytes carried today.
    carried: u64,
    /// Bytes that the ground may send, and the day on which it ends its session.
    ground: u64,
    /// Bytes that it may send for a session of whose end it has not heard.
    orphan: u64,
    ends: u64,
    running: Option<(Account, PathQuota, u64)>,
}

#[derive(Debug, Clone)]
enum Step {
    Send(u64),
    Entrust(u64),
    Receive(u64),
    ReceiveOfOrphan(u64),
    Keep,
    /// The gateway crashes before or after it has written the file.
    CrashInKeep(bool),
    Crash,
    Days(u64),
}

impl Radio {
    fn start(&mut self) {
        let quota = PathQuota::new(LIMIT, chunk_of(LIMIT));
        let account = Account::opened(self.stored, quota.chunk(), self.day);
        quota.begin_day(account.reserved_bytes);
        // Until it hears of the new session, the ground goes on with the old one.
        self.orphan = self.orphan.max(self.ground);
        self.ground = 0;
        self.running = Some((account, quota, 0));
        self.keep(None);
    }

    /// The keeper's turn; `crash` says that it ends before or after the file is written.
    fn keep(&mut self, crash: Option<bool>) {
        let Some((account, quota, unspent)) = &mut self.running else { return };
        *account = account.on(self.day, *unspent + quota.chunk(), false);
        quota.begin_day(account.reserved_bytes);
        let more = account.next(LIMIT, quota.chunk(), quota.left());
        account.reserved_bytes += more;
        if crash != Some(false) {
            self.stored = Some(*account);
        }
        if crash.is_some() {
            self.running = None;
            return;
        }
        quota.add(more);
        *unspent = quota.unspent();
    }

    fn step(&mut self, step: &Step) {
        let is_of_others =
            matches!(step, Step::Receive(_) | Step::ReceiveOfOrphan(_) | Step::Days(_));
        if self.running.is_none() && !is_of_others {
            return self.start();
        }
        let quota = self.running.as_ref().map(|(_, quota, _)| quota.clone());
        match (step, quota) {
            (Step::Send(bytes), Some(quota)) => {
                self.carried += if quota.take(*bytes) { *bytes } else { 0 };
            }
            (Step::Entrust(bytes), Some(quota)) => {
                self.ground += quota.entrust(*bytes);
                // It has heard of the session.
                self.orphan = 0;
                self.ends = self.day + 2;
            }
            (Step::Receive(bytes), quota) => {
                let bytes = (*bytes).min(self.ground);
                self.ground -= bytes;
                self.carried += bytes;
                quota.into_iter().for_each(|quota| quota.settle(bytes));
            }
            (Step::ReceiveOfOrphan(bytes), _) => {
                let bytes = (*bytes).min(self.orphan);
                self.orphan -= bytes;
                self.carried += bytes;
            }
            (Step::Keep, _) => self.keep(None),
            (Step::CrashInKeep(written), _) => self.keep(Some(*written)),
            (Step::Crash, _) => self.running = None,
            (Step::Days(days), _) => {
                self.day += days;
                self.carried = 0;
                if self.day >= self.ends {
                    self.orphan = 0;
                    self.ground = if self.running.is_none() { 0 } else { self.ground };
                }
            }
            _ => {}
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = || 1u64..20_000;
    let step = prop_oneof![
        8 => bytes().prop_map(Step::Send),
        6 => bytes().prop_map(Step::Entrust),
        8 => bytes().prop_map(Step::Receive),
        4 => bytes().prop_map(Step::ReceiveOfOrphan),
        8 => Just(Step::Keep),
        1 => any::<bool>().prop_map(Step::CrashInKeep),
        1 => Just(Step::Crash),
        1 => prop_oneof![3 => Just(1u64), 1 => Just(2u64)].prop_map(Step::Days),
    ];
    prop::collection::vec(step, 1..400)
}

proptest! {
    #[test]
    fn no_day_has_more_than_the_limit(steps in steps()) {
        let mut radio = Radio { stored: None, day: DAY, carried: 0, ground: 0, orphan: 0, ends: 0, running: None };
        for (at, step) in steps.iter().enumerate() {
            radio.step(step);
            prop_assert!(radio.carried <= LIMIT, "{} bytes after step {at}", radio.carried);
        }
    }
}
