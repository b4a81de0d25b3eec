//! The account that flows write to, and the files that it is written to.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bentpipe_schedule::Class;
use serde::Serialize;

use super::{Account, Day, Key, Used};

/// A flow tells what it used when it has used so much, so that a day's bytes are counted on that day.
const METER_BYTES: u64 = 1 << 20;

/// Who used how much, and where that is written.
pub struct Book {
    account: Mutex<Account>,
    directory: PathBuf,
    interval: Duration,
}

/// One line of a file.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    key: &'a Key,
    #[serde(flatten)]
    used: Used,
}

impl Book {
    /// A book whose pages go to `directory` every `interval`.
    pub fn new(directory: &Path, interval: Duration) -> Arc<Self> {
        let (account, directory) = (Mutex::default(), directory.to_owned());
        Arc::new(Self { account, directory, interval })
    }

    /// Writes for ever. What it could not write it tries again, and says so.
    pub async fn keep(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.interval).await;
            let book = self.clone();
            // Fails only if it panics, and then what it held is lost with it.
            let _ = tokio::task::spawn_blocking(move || book.write_or_say()).await;
        }
    }

    /// Writes what is left; at the end.
    pub fn write_or_say(&self) {
        if let Err(error) = self.write() {
            let directory = self.directory.display();
            tracing::warn!(%error, %directory, "usage records cannot be written; trying again");
        }
    }

    /// Appends what was used since the last time to the file of each day, whole lines or nothing.
    /// What cannot be written stays in the book.
    pub fn write(&self) -> io::Result<()> {
        let records = self.lock().take();
        let mut written = Ok(());
        let mut days: Vec<Day> = records.keys().map(|key| key.day).collect();
        days.dedup();
        for day in days {
            let of_day = || records.iter().filter(|(key, _)| key.day == day);
            let path = self.directory.join(format!("usage-{day}.jsonl"));
            if let Err(error) = append(&path, of_day().map(|(key, used)| Line { key, used: *used }))
            {
                let mut account = self.lock();
                of_day().for_each(|(key, used)| account.add(key.clone(), *used));
                written = Err(error);
            }
        }
        written
    }

    /// Counts for a flow that begins now.
    pub fn meter(self: &Arc<Self>, passenger: Arc<str>, class: Class) -> Meter {
        let used = Used { flows: 1, ..Used::default() };
        Meter { book: self.clone(), passenger, class, used }
    }

    fn add(&self, passenger: Arc<str>, class: Class, used: Used) {
        // A clock before 1970 is one that nobody has set.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let day = Day::of_unix(now.as_secs());
        self.lock().add(Key { day, passenger, class }, used);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Account> {
        // Nothing in here panics half-way.
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The old content and the lines behind it become the file at once.
fn append<'a>(path: &Path, lines: impl Iterator<Item = Line<'a>>) -> io::Result<()> {
    let mut content = match std::fs::read(path) {
        Ok(content) => content,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    for line in lines {
        serde_json::to_writer(&mut content, &line)?;
        content.push(b'\n');
    }
    let new = path.with_extension("new");
    let mut file = std::fs::File::create(&new)?;
    file.write_all(&content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)
}

/// Counts what one flow uses; what is left is told when it is dropped.
pub struct Meter {
    book: Arc<Book>,
    passenger: Arc<str>,
    class: Class,
    used: Used,
}

impl Meter {
    /// Bytes from the passenger.
    pub fn up(&mut self, bytes: u64) {
        self.used.up_bytes += bytes;
        self.tell_if_much();
    }

    /// Bytes to the passenger.
    pub fn down(&mut self, bytes: u64) {
        self.used.down_bytes += bytes;
        self.tell_if_much();
    }

    /// A datagram of the flow was dropped.
    pub fn dropped(&mut self) {
        self.used.drops += 1;
    }

    /// What follows is of another class.
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

    fn lines(folder: &Path) -> Vec<serde_json::Value> {
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        let text: String = files.map(|file| std::fs::read_to_string(file).unwrap()).collect();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn what_a_flow_used_is_appended_line_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let book = Book::new(folder.path(), Duration::from_secs(900));
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
        let book = Book::new(&missing, Duration::from_secs(900));
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
}
