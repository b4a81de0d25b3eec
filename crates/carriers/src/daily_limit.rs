//! Daily limits of radios, kept over restarts.
//!
//! Bytes are reserved in a file before they are spent. So a crash or a power cut wastes at most what was
//! reserved, and never lets a radio carry more than its limit. Days are those of UTC.
//!
//! A day begins with what was reserved before and may still be spent: by this gateway, and a chunk by the
//! ground, which may not have heard of the end of a session. If the clock steps, the new day begins with all that was used, because nobody knows how
//! much of it belongs to that day. If it steps back, the day goes on.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bentpipe_config::AirConfig;
use bentpipe_flow::DayUse;
use bentpipe_link::PathQuota;
use bentpipe_net::atomic_file::{self, OWNER_ONLY};
use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// Parts of a limit that are reserved at once: a crash wastes a part …
const PARTS: u64 = 64;
/// … of at least 32 KiB, which the ground may send in a round trip or two.
const MIN_CHUNK_BYTES: u64 = 32 << 10;
/// Parts of an earlier day that may have been spent on the day on which a gateway starts: one and a half
/// that the earlier gateway had left, if it crashed before it knew of the day, and one by the ground.
const MAX_CHUNKS_OVER: u64 = 3;
/// Seconds of a day.
const DAY_S: u64 = 86_400;
/// Day before which no clock is right: 1 January 2026.
const FIRST_DAY: u64 = 20_454;
/// Difference between the clock and the time that has passed from which the clock was set.
const STEP: Duration = Duration::from_secs(60);
/// Interval at which the clock is read.
const LOOK: Duration = Duration::from_secs(1);

/// Reason why the limits cannot be kept.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// The file could not be read or written.
    #[error(
        "the use of daily limits in {} cannot be kept: {source}\n\
         name a file in a folder that this user may write with state-file under [link]", .file.display()
    )]
    File {
        /// The file.
        file: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The file has other contents.
    #[error(
        "{} does not hold the use of daily limits: name another file with state-file under [link], or \
         remove this one", .0.display()
    )]
    Content(PathBuf),
}

/// Bytes reserved of a radio's limit in a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Account {
    /// Days since 1 January 1970, UTC.
    day: u64,
    reserved_bytes: u64,
}

impl Account {
    /// Account of a gateway that starts on `day`. `stored` is that of an earlier one.
    fn opened(stored: Option<Self>, chunk: u64, day: u64) -> Self {
        let Some(stored) = stored else { return Self { day, reserved_bytes: 0 } };
        if stored.day >= day {
            return stored;
        }
        let reserved_bytes = match stored.day < FIRST_DAY {
            true => stored.reserved_bytes,
            false => stored.reserved_bytes.min(MAX_CHUNKS_OVER * chunk),
        };
        Self { day, reserved_bytes }
    }

    /// Account on `day`, at whose beginning `unspent` bytes may still be spent.
    fn on(self, day: u64, unspent: u64, clock_was_set: bool) -> Self {
        if day <= self.day {
            return self;
        }
        let reserved_bytes = if clock_was_set { self.reserved_bytes } else { unspent };
        Self { day, reserved_bytes: reserved_bytes.min(self.reserved_bytes) }
    }

    /// Bytes to reserve now, if `left` are left.
    fn next(self, limit: u64, chunk: u64, left: u64) -> u64 {
        if left >= chunk / 2 {
            return 0;
        }
        chunk.min(limit.saturating_sub(self.reserved_bytes))
    }
}

/// Accounts in a file, by the names of the radios.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
struct Accounts(BTreeMap<String, Account>);

impl Accounts {
    fn load(file: &Path) -> Result<Self, LimitError> {
        match std::fs::read_to_string(file) {
            Ok(text) => toml::from_str(&text).map_err(|_| LimitError::Content(file.to_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(LimitError::File { file: file.to_owned(), source }),
        }
    }

    fn save(&self, file: &Path) -> Result<(), LimitError> {
        let text = toml::to_string(self).map_err(io::Error::other);
        let saved =
            text.and_then(|text| atomic_file::replace_durably(file, text.as_bytes(), OWNER_ONLY));
        saved.map_err(|source| LimitError::File { file: file.to_owned(), source })
    }
}

/// A radio with a limit.
#[derive(Clone)]
struct Radio {
    name: String,
    limit: u64,
    quota: PathQuota,
}

/// The accounts of a file, and the quotas made of them.
struct Keeper {
    file: PathBuf,
    accounts: Mutex<Accounts>,
    radios: Mutex<Vec<Radio>>,
}

/// Keepers of this process, which last as long as it.
static KEEPERS: Mutex<Vec<Arc<Keeper>>> = Mutex::new(Vec::new());

/// Quotas of the radios of `config`, in their order. All sessions of the process share them. A thread for
/// each radio with a limit reserves more when they run low.
pub fn quotas(config: &AirConfig) -> Result<Vec<Option<PathQuota>>, LimitError> {
    let limits = config.paths.iter().map(|path| (path.name.as_str(), path.daily_limit));
    let limited = limits.clone().any(|(_, limit)| limit.is_some());
    if !limited {
        return Ok(limits.map(|_| None).collect());
    }
    let keeper = keeper_of(&file_of(config))?;
    let quota = |(name, limit): (&str, Option<bentpipe_units::ByteSize>)| {
        limit.map(|limit| keeper.quota(name, limit.bytes())).transpose()
    };
    limits.map(quota).collect()
}

/// Use of the limits of `config` today, by the names of the radios, without those that carried nothing.
pub fn used(config: &AirConfig) -> Result<BTreeMap<String, DayUse>, LimitError> {
    let stored = Accounts::load(&file_of(config))?;
    let limited = config.paths.iter().filter_map(|path| Some((path, path.daily_limit?.bytes())));
    let used = limited.filter_map(|(path, limit_bytes)| {
        let stored = stored.0.get(&path.name).copied()?;
        let used_bytes =
            Account::opened(Some(stored), chunk_of(limit_bytes), today()).reserved_bytes;
        Some((path.name.clone(), DayUse { limit_bytes, used_bytes }))
    });
    Ok(used.collect())
}

/// File of the accounts.
fn file_of(config: &AirConfig) -> PathBuf {
    let mut name = config.link.state_file.as_os_str().to_owned();
    name.push(".days");
    name.into()
}

fn chunk_of(limit: u64) -> u64 {
    (limit / PARTS).max(MIN_CHUNK_BYTES)
}

fn keeper_of(file: &Path) -> Result<Arc<Keeper>, LimitError> {
    let mut keepers = KEEPERS.lock();
    if let Some(keeper) = keepers.iter().find(|keeper| keeper.file == file) {
        return Ok(keeper.clone());
    }
    let accounts = Mutex::new(Accounts::load(file)?);
    let keeper = Keeper { file: file.to_owned(), accounts, radios: Mutex::default() };
    let keeper = Arc::new(keeper);
    keepers.push(keeper.clone());
    Ok(keeper)
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn today() -> u64 {
    now().as_secs() / DAY_S
}

/// Difference between the clock and the time since the machine started, which no setting changes.
fn offset() -> Duration {
    let since_boot = clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from);
    now().saturating_sub(since_boot.unwrap_or_default())
}

impl Keeper {
    /// Quota of the radio `name`, with its first bytes.
    fn quota(self: &Arc<Self>, name: &str, limit: u64) -> Result<PathQuota, LimitError> {
        let mut radios = self.radios.lock();
        if let Some(radio) = radios.iter().find(|radio| radio.name == name) {
            return Ok(radio.quota.clone());
        }
        let quota = PathQuota::new(limit, chunk_of(limit));
        let radio = Radio { name: name.to_owned(), limit, quota: quota.clone() };
        let stored = self.accounts.lock().0.get(name).copied();
        let account = Account::opened(stored, quota.chunk(), today());
        if account.day > today() {
            tracing::warn!(
                radio = name,
                "the clock is before the day in {}: the daily limit goes on as it was then; if the \
                 clock is right, stop the gateway and remove the file",
                self.file.display()
            );
        }
        self.accounts.lock().0.insert(name.to_owned(), account);
        quota.begin_day(account.reserved_bytes);
        self.reserve(&radio)?;
        radios.push(radio.clone());
        let keeper = self.clone();
        std::thread::spawn(move || keeper.keep(&radio));
        Ok(quota)
    }

    /// Reserves more bytes if few are left, and returns how many.
    fn reserve(&self, radio: &Radio) -> Result<u64, LimitError> {
        let Radio { name, limit, quota } = radio;
        let mut accounts = self.accounts.lock();
        let Some(account) = accounts.0.get_mut(name) else { return Ok(0) };
        let more = account.next(*limit, quota.chunk(), quota.left());
        if more == 0 {
            return Ok(0);
        }
        account.reserved_bytes += more;
        if let Err(error) = accounts.save(&self.file) {
            let account = accounts.0.get_mut(name);
            account.into_iter().for_each(|account| account.reserved_bytes -= more);
            return Err(error);
        }
        quota.add(more);
        Ok(more)
    }

    /// Returns `true` if all of the limit is reserved, so that no more can be.
    fn is_reserved(&self, radio: &Radio) -> bool {
        let account = self.accounts.lock().0.get(&radio.name).copied();
        account.is_some_and(|account| account.reserved_bytes >= radio.limit)
    }

    /// Returns `true` if the limit is used up.
    fn is_spent(&self, radio: &Radio) -> bool {
        self.is_reserved(radio) && radio.quota.left() < MIN_CHUNK_BYTES / 4
    }

    /// Begins another day, if it has come.
    fn turn(&self, radio: &Radio, unspent: u64, clock_was_set: bool) -> Result<(), LimitError> {
        let mut accounts = self.accounts.lock();
        let Some(account) = accounts.0.get_mut(&radio.name) else { return Ok(()) };
        let next = account.on(today(), unspent, clock_was_set);
        if next == *account {
            return Ok(());
        }
        let before = std::mem::replace(account, next);
        if let Err(error) = accounts.save(&self.file) {
            accounts.0.insert(radio.name.clone(), before);
            return Err(error);
        }
        radio.quota.begin_day(next.reserved_bytes);
        tracing::info!(
            radio = radio.name,
            limit_bytes = radio.limit,
            "another day of the limit begins"
        );
        Ok(())
    }

    /// Keeps a radio's quota for the rest of the process.
    fn keep(&self, radio: &Radio) {
        let (mut failed, mut spent, mut before) = (false, false, offset());
        // Until the accounts know: a file that cannot be written does not hide a step of the clock.
        let mut clock_was_set = false;
        let mut unspent = radio.quota.unspent();
        loop {
            let offset = offset();
            clock_was_set |= offset.abs_diff(before) > STEP;
            before = offset;
            // A session that was lost, here or in an earlier process, may have left the ground a chunk.
            let unspent_there = unspent + radio.quota.chunk();
            let turned = self.turn(radio, unspent_there, clock_was_set);
            clock_was_set &= turned.is_err();
            match turned.and_then(|()| self.reserve(radio)) {
                Ok(more) => {
                    failed = false;
                    unspent = self.unspent(radio, unspent + more);
                    let was_spent = std::mem::replace(&mut spent, self.is_spent(radio));
                    if spent && !was_spent {
                        tracing::warn!(
                            radio = radio.name,
                            limit_bytes = radio.limit,
                            "the daily limit is used up: nothing goes there until 00:00 UTC"
                        );
                    }
                }
                Err(error) => {
                    if !std::mem::replace(&mut failed, true) {
                        tracing::warn!(
                            radio = radio.name,
                            %error,
                            "the radio carries nothing beyond what is reserved"
                        );
                    }
                }
            }
            // The quota is low and stays so: it would not wait.
            if failed || self.is_reserved(radio) {
                std::thread::sleep(LOOK);
            } else {
                radio.quota.wait_low(LOOK);
            }
        }
    }

    /// Bytes that may still be spent, unless the day is over: then at most `before`, those at its end.
    fn unspent(&self, radio: &Radio, before: u64) -> u64 {
        let unspent = radio.quota.unspent();
        let account = self.accounts.lock().0.get(&radio.name).copied();
        if account.is_some_and(|account| today() <= account.day) { unspent } else { before }
    }
}

#[cfg(test)]
#[path = "daily_limit_tests.rs"]
mod tests;
