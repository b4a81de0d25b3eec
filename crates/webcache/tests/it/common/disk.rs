//! Objects on disk, for tests of the directory.

use std::fs;
use std::path::{Path, PathBuf};

use bentpipe_webcache::Outcome;
use bytes::Bytes;

use super::{Rig, headers, key, response};

pub const FRESH: &str = "cache-control: max-age=600; etag: \"a\"";

/// A body that identifies its object and reveals any damage.
pub fn body(n: usize) -> Bytes {
    let line = format!("object {n} ");
    line.repeat(3000 + n % 7).into()
}

pub async fn fill(rig: &Rig, range: std::ops::Range<usize>) {
    for n in range {
        let whole = response(FRESH).map(|()| body(n));
        rig.cache.insert(&key(&format!("/{n}")), &headers(""), whole, false);
    }
    rig.cache.settle().await;
}

/// Number of hits among the first `count` objects. Every hit must have the right body.
pub async fn count(rig: &Rig, count: usize) -> usize {
    let mut here = 0;
    for n in 0..count {
        let got = rig.get(&format!("/{n}"), "").await;
        if got.outcome == Outcome::Hit {
            assert_eq!(got.body.unwrap(), body(n), "object {n} is damaged");
            here += 1;
        }
    }
    here
}

pub fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.retain(|file| !file.ends_with("lock"));
    files
}

/// Disk space of `directory`, counted like the budget.
pub fn usage(directory: &Path) -> u64 {
    let sizes =
        files(directory).into_iter().filter_map(|file| Some(fs::metadata(file).ok()?.len()));
    sizes.map(|bytes| bytes.div_ceil(4096) * 4096).sum()
}
