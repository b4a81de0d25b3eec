//! Usage of each passenger on each day: an account in memory, and lines of JSON in files.

mod account;
mod book;

pub use account::{Account, Day, Key, MAX_RECORDS, OTHERS, Used};
pub use book::{Book, MAX_LABELS_PER_DAY, Meter};
