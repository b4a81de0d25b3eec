//! Account that flows write to, and its files.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_schedule::Class;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{Account, Day, Key, OTHERS, Used};

/// Bytes after which a flow reports its usage, so that they are counted on the right day.
const METER_BYTES: u64 = 1 << 20;

/// File mode: only the group may read the records, because they are personal data.
const MODE: u32 = 0o640;

/// Bytes read at a time when searching backwards for the last complete line.
const PIECE_BYTES: usize = 4096;

/// Maximum number of passengers with their own lines in one day's file; the rest share the label
/// [`OTHERS`]. With 8 classes and a line of 150 bytes for each every 15 min, that is 470 MB a day.
/// A flight of 300 people writes 4 MB.
pub const MAX_LABELS_PER_DAY: usize = 4_096;

/// Usage account and the directory of its files.
pub struct Book {
    account: Mutex<Account>,
    labels: Mutex<Labels>,
    directory: PathBuf,
    interval: Duration,
    /// Current day.
    today: fn() -> Day,
}

/// One line of a file.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    key: &'a Key,
    #[serde(flatten)]
    used: Used,
}

/// Passengers with lines in the file of the latest day.
#[derive(Default)]
struct Labels {
    day: Option<Day>,
    known: HashSet<Arc<str>>,
}

/// Part of a line that identifies the passenger.
#[derive(Deserialize)]
struct Whose {
    passenger: String,
}

impl Labels {
    /// Returns the label of `passenger` in the file at `path`, which belongs to `day`.
    fn of(&mut self, passenger: &Arc<str>, day: Day, path: &Path) -> Arc<str> {
        if self.day != Some(day) {
            *self = Self { day: Some(day), known: in_file(path) };
        }
        if self.known.contains(passenger) {
            return passenger.clone();
        }
        if self.known.len() >= MAX_LABELS_PER_DAY {
            return OTHERS.into();
        }
        self.known.insert(passenger.clone());
        passenger.clone()
    }
}

/// Returns the passengers in a file begun by an earlier run.
fn in_file(path: &Path) -> HashSet<Arc<str>> {
    let mut known = HashSet::new();
    let Ok(file) = File::open(path) else { return known };
    for line in BufReader::new(file).split(b'\n').map_while(Result::ok) {
        if known.len() >= MAX_LABELS_PER_DAY {
            break;
        }
        // A line truncated by a crash is skipped.
        if let Ok(Whose { passenger }) = serde_json::from_slice(&line)
            && passenger != OTHERS
        {
            known.insert(passenger.into());
        }
    }
    known
}

impl Book {
    /// Creates a book that writes its records to `directory` every `interval`.
    pub fn new(directory: &Path, interval: Duration) -> Arc<Self> {
        Self::with_days(directory, interval, today)
    }

    fn with_days(directory: &Path, interval: Duration, today: fn() -> Day) -> Arc<Self> {
        let (account, labels, directory) =
            (Mutex::default(), Mutex::default(), directory.to_owned());
        Arc::new(Self { account, labels, directory, interval, today })
    }

    /// Writes records periodically, forever. Logs failures and tries again.
    pub async fn keep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.interval).await;
            let book = self.clone();
            // Fails only if the write panics; the records it held are then lost.
            let _ = tokio::task::spawn_blocking(move || book.write_or_say()).await;
        }
    }

    /// Writes the remaining records; for shutdown.
    pub fn write_or_say(&self) {
        if let Err(error) = self.write() {
            let directory = self.directory.display();
            tracing::warn!(%error, %directory, "usage records cannot be written; trying again");
        }
    }

    /// Appends the usage since the last write to each day's file, in complete lines or not at all.
    /// Records that cannot be written stay in the book.
    pub fn write(&self) -> io::Result<()> {
        let records = self.lock().take();
        let mut written = Ok(());
        let mut days: Vec<Day> = records.keys().map(|key| key.day).collect();
        days.dedup();
        for day in days {
            let of_day = || records.iter().filter(|(key, _)| key.day == day);
            let path = self.directory.join(format!("usage-{day}.jsonl"));
            let lines = self.named(of_day(), day, &path);
            let lines = lines.iter().map(|(key, used)| Line { key, used: *used });
            if let Err(error) = append(&path, lines) {
                let mut account = self.lock();
                of_day().for_each(|(key, used)| account.add(key.clone(), *used));
                written = Err(error);
            }
        }
        written
    }

    /// Relabels `records` of `day` for its file.
    fn named<'a>(
        &self,
        records: impl Iterator<Item = (&'a Key, &'a Used)>,
        day: Day,
        path: &Path,
    ) -> BTreeMap<Key, Used> {
        let mut labels = self.labels.lock();
        let mut named = Account::default();
        for (key, used) in records {
            let passenger = labels.of(&key.passenger, day, path);
            named.add(Key { passenger, ..key.clone() }, *used);
        }
        named.take()
    }

    /// Creates a meter for a flow that begins now.
    pub fn meter(self: &Arc<Self>, passenger: Arc<str>, class: Class) -> Meter {
        let used = Used { flows: 1, ..Used::default() };
        Meter { book: self.clone(), passenger, class, used }
    }

    fn add(&self, passenger: Arc<str>, class: Class, used: Used) {
        let day = (self.today)();
        self.lock().add(Key { day, passenger, class }, used);
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Account> {
        self.account.lock()
    }
}

/// UTC day of the system's clock.
fn today() -> Day {
    // A clock before 1970 has not been set.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Day::of_unix(now.as_secs())
}

/// Appends complete lines or nothing. Removes a line truncated by a crash first.
fn append<'a>(path: &Path, lines: impl Iterator<Item = Line<'a>>) -> io::Result<()> {
    let mut content = Vec::new();
    for line in lines {
        serde_json::to_writer(&mut content, &line)?;
        content.push(b'\n');
    }
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.read(true).append(true).create(true).mode(MODE).open(path)?;
    let whole = whole_lines_bytes(&mut file)?;
    file.set_len(whole)?;
    let written = file.write_all(&content).and_then(|()| file.sync_all());
    if written.is_err() {
        // If this fails too, the next write removes the incomplete line.
        let _ = file.set_len(whole);
    }
    written
}

/// Returns the length of the file up to the end of its last complete line.
fn whole_lines_bytes(file: &mut File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut piece = [0; PIECE_BYTES];
    while end > 0 {
        let start = end.saturating_sub(PIECE_BYTES as u64);
        let piece = &mut piece[..(end - start) as usize];
        file.seek(SeekFrom::Start(start))?;
        file.read_exact(piece)?;
        if let Some(at) = piece.iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Counts the usage of one flow. Reports the remainder when dropped.
pub struct Meter {
    book: Arc<Book>,
    passenger: Arc<str>,
    class: Class,
    used: Used,
}

impl Meter {
    /// Adds bytes from the passenger.
    pub fn up(&mut self, bytes: u64) {
        self.used.up_bytes += bytes;
        self.tell_if_much();
    }

    /// Adds bytes to the passenger.
    pub fn down(&mut self, bytes: u64) {
        self.used.down_bytes += bytes;
        self.tell_if_much();
    }

    /// Counts a dropped datagram of the flow.
    pub fn dropped(&mut self) {
        self.used.drops += 1;
    }

    /// Counts subsequent bytes in another class.
    pub fn reclass(&mut self, class: Class) {
        self.tell();
        self.class = class;
    }

    fn tell_if_much(&mut self) {
        if self.used.up_bytes + self.used.down_bytes >= METER_BYTES {
            self.tell();
        }
    }

    fn tell(&mut self) {
        let used = std::mem::take(&mut self.used);
        if used != Used::default() {
            self.book.add(self.passenger.clone(), self.class, used);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.tell();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A book of one day, whatever the clock of the machine says.
    fn one_day(folder: &Path) -> Arc<Book> {
        Book::with_days(folder, Duration::from_secs(900), || Day::of_unix(1_795_000_000))
    }

    fn lines(folder: &Path) -> Vec<serde_json::Value> {
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let text: String = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn usage_of_flows_is_appended_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let book = one_day(folder.path());
        let mut meter = book.meter("10.0.0.7".into(), Class::LowerEffort);
        meter.up(10);
        meter.reclass(Class::Assured);
        meter.down(200);
        meter.dropped();
        drop(meter);
        book.write().unwrap();
        book.meter("10.0.0.7".into(), Class::Assured).up(5);
        book.write().unwrap();
        book.write().unwrap();
        let lines = lines(folder.path());
        let numbers = |line: &serde_json::Value| {
            ["up_bytes", "down_bytes", "flows", "drops"].map(|name| line[name].as_u64().unwrap())
        };
        let of = |class: &str| -> Vec<[u64; 4]> {
            lines.iter().filter(|line| line["class"] == class).map(numbers).collect()
        };
        assert_eq!(of("lower-effort"), [[10, 0, 1, 0]]);
        assert_eq!(of("assured"), [[0, 200, 0, 1], [5, 0, 1, 0]]);
        assert!(lines.iter().all(|line| line["passenger"] == "10.0.0.7"), "{lines:?}");
        assert!(lines.iter().all(|line| line["day"].as_str().unwrap().len() == 10), "{lines:?}");
    }

    #[test]
    fn much_is_told_before_the_flow_ends_and_kept_while_it_cannot_be_written() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("missing");
        let book = one_day(&missing);
        let mut meter = book.meter("a".into(), Class::BestEffort);
        meter.down(METER_BYTES - 1);
        book.write().unwrap();
        meter.down(1);
        assert!(book.write().is_err(), "there is no such directory");
        std::fs::create_dir(&missing).unwrap();
        book.write().unwrap();
        assert_eq!(lines(&missing)[0]["down_bytes"].as_u64(), Some(METER_BYTES));
        drop(meter);
    }

    fn used(book: &Arc<Book>, passenger: &str) {
        book.meter(passenger.into(), Class::BestEffort).down(7);
    }

    fn file(folder: &Path) -> PathBuf {
        std::fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
    }

    #[test]
    fn a_line_that_a_crash_has_cut_goes_and_whole_ones_stay() {
        let folder = tempfile::tempdir().unwrap();
        let book = one_day(folder.path());
        used(&book, "a");
        book.write().unwrap();
        let path = file(folder.path());
        let whole = std::fs::read(&path).unwrap();
        // Longer than one read.
        let cut = [&whole[..], br#"{"day":"2026-11-2"#, &[b'x'; PIECE_BYTES]].concat();
        std::fs::write(&path, cut).unwrap();
        used(&book, "b");
        book.write().unwrap();
        let after = std::fs::read(&path).unwrap();
        assert!(after.starts_with(&whole), "nothing is written again");
        assert_eq!(lines(folder.path()).len(), 2);
        std::fs::write(&path, "no line at all").unwrap();
        used(&book, "c");
        book.write().unwrap();
        assert_eq!(lines(folder.path()).len(), 1);
    }

    #[test]
    fn records_are_for_the_owner_and_the_group() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let book = one_day(folder.path());
        used(&book, "a");
        book.write().unwrap();
        let mode = std::fs::metadata(file(folder.path())).unwrap().permissions().mode();
        assert_eq!(
            mode & 0o7137,
            0,
            "{mode:o}: nobody else may read it, and nobody else writes it"
        );
        assert_eq!(mode & 0o600, 0o600);
    }

    /// A device that keeps inventing addresses cannot fill the disk, not even across a restart.
    #[test]
    fn a_day_has_so_many_names_and_loses_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let book = one_day(folder.path());
        let all = MAX_LABELS_PER_DAY + 10;
        (0..all - 5).for_each(|n| used(&book, &n.to_string()));
        book.write().unwrap();
        let again = one_day(folder.path());
        used(&again, "0");
        (all - 5..all).for_each(|n| used(&again, &n.to_string()));
        again.write().unwrap();
        let lines = lines(folder.path());
        let names: HashSet<_> = lines.iter().map(|line| line["passenger"].to_string()).collect();
        assert_eq!(names.len(), MAX_LABELS_PER_DAY + 1);
        let bytes: u64 = lines.iter().map(|line| line["down_bytes"].as_u64().unwrap()).sum();
        assert_eq!(bytes, 7 * (all as u64 + 1));
        let others = lines.iter().filter(|line| line["passenger"] == OTHERS);
        let flows: Vec<_> = others.map(|line| line["flows"].as_u64().unwrap()).collect();
        assert_eq!(flows, [5, 5]);
    }
}
