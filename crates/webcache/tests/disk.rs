//! Content of the directory, over restarts, crashes, damage and a disk that is full.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bentpipe_webcache::{Cache, Forwarded, OpenError, Outcome, Rules, Settings};
use bytes::Bytes;
use common::{Rig, headers, key, response};
use http_body_util::BodyExt;

const FRESH: &str = "cache-control: max-age=600; etag: \"a\"";

/// Set in processes that a test has started to be killed, or to be in a namespace of their own.
const CHILD: &str = "BENTPIPE_WEBCACHE_TEST_DIRECTORY";

/// A body that shows where it belongs, and every damage.
fn body(n: usize) -> Bytes {
    let line = format!("object {n} ");
    line.repeat(3000 + n % 7).into()
}

async fn fill(rig: &Rig, range: std::ops::Range<usize>) {
    for n in range {
        let whole = response(FRESH).map(|()| body(n));
        rig.cache.insert(&key(&format!("/{n}")), &headers(""), whole, false);
    }
    rig.cache.settle().await;
}

/// Number of the first `count` objects that are here; every given object must be right.
async fn count(rig: &Rig, count: usize) -> usize {
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

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(directory).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    files.retain(|file| !file.ends_with("lock"));
    files
}

/// Disk space of `directory`, as the budget counts it.
fn usage(directory: &Path) -> u64 {
    let sizes =
        files(directory).into_iter().filter_map(|file| Some(fs::metadata(file).ok()?.len()));
    sizes.map(|bytes| bytes.div_ceil(4096) * 4096).sum()
}

#[tokio::test]
async fn objects_and_pins_outlive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::on_disk(directory.path());
    fill(&rig, 0..20).await;
    assert!(rig.cache.pin(&key("/3"), &headers(""), true));
    rig.cache.settle().await;
    drop(rig);
    let rig = Rig::on_disk(directory.path());
    rig.cache.settle().await;
    assert_eq!(count(&rig, 20).await, 20);
    // Its age goes on.
    rig.wait(599);
    assert_eq!(rig.get("/1", "").await.field("age"), "599");
    drop(rig);
    // Less room: the pinned one stays.
    let settings = Settings {
        directory: Some(directory.path().to_owned()),
        disk_bytes: 200_000,
        ..Settings::default()
    };
    let rig = Rig::with(&settings);
    rig.cache.settle().await;
    assert!(rig.cache.has(&key("/3"), &headers("")));
    assert!(usage(directory.path()) <= 200_000);
}

#[tokio::test]
async fn what_was_invalidated_or_confirmed_is_so_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::on_disk(directory.path());
    fill(&rig, 0..2).await;
    rig.cache.changed(&key("/0"), &http::Method::POST, (http::StatusCode::OK, &headers("")));
    rig.wait(601);
    rig.says_text("304; cache-control: max-age=9999; etag: \"a\"", "");
    assert_eq!(rig.get("/1", "").await.outcome, Outcome::Validated);
    rig.cache.settle().await;
    drop(rig);
    let rig = Rig::on_disk(directory.path());
    rig.cache.settle().await;
    rig.wait(700);
    assert!(!rig.cache.has(&key("/0"), &headers("")));
    assert!(rig.cache.has(&key("/1"), &headers("")));
}

#[tokio::test]
async fn a_head_that_cannot_be_rewritten_goes_only_where_it_would_promise_too_much() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::on_disk(directory.path());
    fill(&rig, 0..2).await;
    // What a head is written to first cannot be written.
    let heads =
        || files(directory.path()).into_iter().filter(|it| it.extension().unwrap() == "head");
    for head in heads() {
        fs::create_dir(head.with_extension("tmp")).unwrap();
    }
    rig.wait(601);
    rig.says_text("304; cache-control: max-age=600; etag: \"a\"", "");
    assert_eq!(rig.get("/0", "").await.outcome, Outcome::Validated);
    rig.cache.changed(&key("/1"), &http::Method::POST, (http::StatusCode::OK, &headers("")));
    rig.cache.settle().await;
    assert_eq!(rig.get("/0", "").await.outcome, Outcome::Hit, "it is only older there");
    assert_eq!(heads().count(), 1);
    drop(rig);
    let rig = Rig::on_disk(directory.path());
    rig.cache.settle().await;
    rig.wait(601);
    rig.says_text("304; cache-control: max-age=600; etag: \"a\"", "");
    assert_eq!(rig.get("/0", "").await.outcome, Outcome::Validated);
    rig.says_text(FRESH, "new");
    assert_eq!(rig.get("/1", "").await.text(), "new");
}

#[tokio::test]
async fn one_gateway_has_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings { directory: Some(directory.path().to_owned()), ..Settings::default() };
    let first = Cache::open(&settings, Rules::default()).unwrap();
    let second = Cache::open(&settings, Rules::default());
    assert!(matches!(second.map(|_| ()), Err(OpenError::Taken { .. })));
    drop(first);
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let settings = Settings { directory: Some(file), ..Settings::default() };
    let unusable = Cache::open(&settings, Rules::default()).map(|_| ());
    assert!(matches!(unusable, Err(OpenError::Unusable { .. })));
}

#[tokio::test]
async fn damaged_files_are_never_served() {
    for damage in ["flip", "cut", "empty", "longer", "missing", "swapped"] {
        let directory = tempfile::tempdir().unwrap();
        let rig = Rig::on_disk(directory.path());
        fill(&rig, 0..12).await;
        drop(rig);
        let all = files(directory.path());
        assert_eq!(all.len(), 24);
        // Half of the heads and half of the bodies, none of one object.
        for (at, file) in all.iter().enumerate().filter(|(at, _)| at % 4 == 0 || at % 4 == 3) {
            let mut bytes = fs::read(file).unwrap();
            match damage {
                "flip" => bytes[at * 7 % 100] ^= 16,
                "cut" => bytes.truncate(bytes.len() - 1 - at),
                "empty" => bytes.clear(),
                "longer" => bytes.push(0),
                "swapped" => bytes = fs::read(&all[(at + 4) % all.len()]).unwrap(),
                _ => {
                    fs::remove_file(file).unwrap();
                    continue;
                }
            }
            fs::write(file, bytes).unwrap();
        }
        let rig = Rig::on_disk(directory.path());
        rig.cache.settle().await;
        assert_eq!(count(&rig, 12).await, 0, "{damage}");
        rig.cache.settle().await;
        assert_eq!(files(directory.path()), Vec::<PathBuf>::new(), "{damage}");
    }
}

#[tokio::test]
async fn damage_while_it_runs_is_seen_too() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        directory: Some(directory.path().to_owned()),
        memory_bytes: 100_000,
        ..Settings::default()
    };
    let rig = Rig::with(&settings);
    fill(&rig, 0..30).await;
    for file in files(directory.path()).iter().filter(|file| file.extension().unwrap() == "body") {
        let mut bytes = fs::read(file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file, bytes).unwrap();
    }
    // Only those that are in memory.
    assert!((1..=4).contains(&count(&rig, 30).await));
}

#[tokio::test]
async fn what_cannot_be_read_now_is_asked_for_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        directory: Some(directory.path().to_owned()),
        memory_bytes: 1_200_000,
        ..Settings::default()
    };
    let rig = Rig::with(&settings);
    // One that is given from memory, and one that is given from disk piece by piece.
    fill(&rig, 0..1).await;
    let whole = response(FRESH).map(|()| body(1).repeat(10).into());
    rig.cache.insert(&key("/large"), &headers(""), whole, true);
    for n in 2..80 {
        fill(&rig, n..n + 1).await;
    }
    let bodies = files(directory.path());
    let bodies: Vec<_> = bodies.iter().filter(|it| it.extension().unwrap() == "body").collect();
    // An error that says nothing of the object, as one of too many open files would be.
    let aside = |file: &Path| file.with_extension("aside");
    for file in &bodies {
        fs::rename(file, aside(file)).unwrap();
        std::os::unix::fs::symlink(file, file).unwrap();
    }
    for path in ["/0", "/large"] {
        rig.says_text("cache-control: no-store", "from the origin");
        let got = rig.get(path, "").await;
        assert_eq!(got.outcome, Outcome::Miss(Forwarded::Bypass), "{path}");
        assert_eq!(got.text(), "from the origin");
        assert_eq!(rig.get(path, "cache-control: only-if-cached").await.status.as_u16(), 504);
    }
    for file in &bodies {
        fs::rename(aside(file), file).unwrap();
    }
    assert_eq!(rig.get("/0", "").await.body.unwrap(), body(0));
    let large = rig.get("/large", "").await;
    assert_eq!((large.outcome, large.body.unwrap().len()), (Outcome::Hit, 10 * body(1).len()));
    assert_eq!((rig.asked(), rig.cache.pinned().len()), (2, 1));
}

#[tokio::test]
async fn what_cannot_be_read_at_the_start_is_dropped_and_takes_no_room() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::on_disk(directory.path());
    fill(&rig, 0..2).await;
    drop(rig);
    let heads = files(directory.path());
    let heads: Vec<_> = heads.iter().filter(|it| it.extension().unwrap() == "head").collect();
    // A link to itself is there, and cannot be opened (ELOOP).
    fs::remove_file(heads[0]).unwrap();
    std::os::unix::fs::symlink(heads[0], heads[0]).unwrap();
    let rig = Rig::on_disk(directory.path());
    rig.cache.settle().await;
    assert_eq!(rig.cache.occupancy().objects, 1);
    assert_eq!(files(directory.path()).len(), 2, "a head and a body");
}

#[tokio::test]
async fn the_budgets_hold_under_churn() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        directory: Some(directory.path().to_owned()),
        memory_bytes: 300_000,
        disk_bytes: 1_000_000,
        object_bytes: 200_000,
    };
    let rig = Rig::with(&settings);
    for round in 0..20 {
        for n in 0..25 {
            let n = round * 25 + n;
            // From nothing to somewhat more than may be stored.
            let bytes = vec![n as u8; n * 7919 % 210_000];
            rig.cache.insert(
                &key(&format!("/{n}")),
                &headers(""),
                response(FRESH).map(|()| bytes.into()),
                false,
            );
            if n % 3 == 0 {
                rig.cache.settle().await;
            }
            let now = rig.cache.occupancy();
            assert!(now.memory_bytes <= 300_000 && now.disk_bytes <= 1_000_000, "{now:?}");
        }
        rig.cache.settle().await;
        let usage = usage(directory.path());
        assert_eq!(usage, rig.cache.occupancy().disk_bytes);
        assert!(usage <= 1_000_000);
    }
    // How much is kept depends on how fast the disk was. Where that is waited for, what fits is.
    for n in 500..505 {
        fill(&rig, n..n + 1).await;
    }
    let now = rig.cache.occupancy();
    assert!(now.memory_bytes <= 300_000 && now.disk_bytes <= 1_000_000, "{now:?}");
    for n in 500..505 {
        assert_eq!(rig.get(&format!("/{n}"), "").await.body.unwrap(), body(n), "what came last");
    }
    assert_eq!(rig.asked(), 0);
}

/// A body of 600 KB that shows where it belongs.
fn large(n: usize) -> Bytes {
    format!("large {n:02}").repeat(75_000).into()
}

#[tokio::test]
async fn slow_readers_of_large_objects_leave_the_memory_to_others() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        directory: Some(directory.path().to_owned()),
        memory_bytes: 3 << 20,
        object_bytes: 700_000,
        ..Settings::default()
    };
    let rig = Rig::with(&settings);
    for n in 0..12 {
        let whole = response(FRESH).map(|()| large(n));
        rig.cache.insert(&key(&format!("/large/{n}")), &headers(""), whole, false);
        rig.cache.settle().await;
    }
    fill(&rig, 0..30).await;
    // More than there is memory for are being read.
    let mut slow = Vec::new();
    for n in 0..12 {
        let served = rig.serve(&format!("/large/{n}"), "").await;
        assert_eq!(served.outcome, Outcome::Hit, "{n}");
        let mut body = served.response.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(first, large(n)[..first.len()]);
        slow.push((n, first, body));
    }
    assert_eq!(count(&rig, 30).await, 30);
    assert!(rig.cache.occupancy().memory_bytes <= 3 << 20);
    for (n, first, body) in slow {
        let rest = body.collect().await.unwrap().to_bytes();
        assert_eq!([first, rest].concat(), large(n));
    }
    // Parts of them begin and end anywhere.
    for (first, last) in [(0, 0), (65_535, 65_536), (100_000, 300_000), (599_999, 599_999)] {
        let got = rig.get("/large/7", &format!("range: bytes={first}-{last}")).await;
        assert_eq!(
            (got.status.as_u16(), got.body.unwrap()),
            (206, large(7).slice(first..last + 1))
        );
    }
    assert_eq!(rig.asked(), 0);
}

#[tokio::test]
async fn a_large_object_that_is_damaged_while_it_is_read_breaks_off() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::on_disk(directory.path());
    let whole = response(FRESH).map(|()| large(1));
    rig.cache.insert(&key("/large"), &headers(""), whole, false);
    rig.cache.settle().await;
    let served = rig.serve("/large", "").await;
    let file = files(directory.path()).into_iter().find(|it| it.extension().unwrap() == "body");
    let file = fs::File::options().write(true).open(file.unwrap()).unwrap();
    file.write_at(b"?", 500_000).unwrap();
    let mut body = served.response.unwrap().into_body();
    let mut given = 0;
    let broke_off = loop {
        match body.frame().await {
            Some(Ok(frame)) => given += frame.into_data().unwrap().len(),
            other => break other.is_some(),
        }
    };
    assert!(broke_off && given == 500_000 / 65_536 * 65_536, "{given}");
    // And nobody is given any of it after that.
    rig.says_text(FRESH, "new");
    assert_eq!(rig.get("/large", "").await.text(), "new");
}

#[tokio::test]
async fn what_is_used_stays_longest() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        directory: Some(directory.path().to_owned()),
        disk_bytes: 400_000,
        ..Settings::default()
    };
    let rig = Rig::with(&settings);
    for n in 0..40 {
        fill(&rig, n..n + 1).await;
        assert_eq!(rig.get("/0", "").await.outcome, Outcome::Hit, "after {n}");
    }
    assert!(!rig.cache.has(&key("/1"), &headers("")));
}

#[tokio::test]
async fn pinned_objects_have_half_of_the_room() {
    let settings = Settings { memory_bytes: 1_000_000, ..Settings::default() };
    let rig = Rig::with(&settings);
    let mut pinned = 0;
    for n in 0..40 {
        let whole = response(FRESH).map(|()| body(n));
        pinned += usize::from(rig.cache.insert(&key(&format!("/{n}")), &headers(""), whole, true));
    }
    assert!((10..=20).contains(&pinned), "{pinned}");
    fill(&rig, 100..200).await;
    assert_eq!(count(&rig, pinned).await, pinned);
    assert!(rig.cache.occupancy().memory_bytes <= 1_000_000);
}

/// A process that stores until it is killed.
#[tokio::test]
#[ignore = "started by the test below"]
async fn child_that_stores_for_ever() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let rig = Rig::on_disk(Path::new(&directory));
    for n in 0.. {
        fill(&rig, n % 500..n % 500 + 1).await;
        println!("stored {n}");
    }
}

#[tokio::test]
async fn a_kill_in_the_middle_of_writing_harms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..6_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "child_that_stores_for_ever"])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // SIGKILL after a while that differs from round to round.
        let enough = 40 + round * 17;
        let stored = lines.by_ref().filter(|line| line.as_ref().unwrap().contains("stored"));
        assert_eq!(stored.take(enough as usize).count(), enough as usize);
        child.kill().unwrap();
        child.wait().unwrap();
        let rig = Rig::on_disk(directory.path());
        rig.cache.settle().await;
        // All that it said to be stored is here, and whole.
        assert!(count(&rig, 500).await >= enough as usize, "round {round}");
        rig.cache.settle().await;
        assert_eq!(usage(directory.path()), rig.cache.occupancy().disk_bytes);
    }
}

/// In a namespace where a small file system is mounted at the directory.
#[tokio::test]
#[ignore = "started by the test below"]
async fn child_on_a_small_disk() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let directory = Path::new(&directory);
    let rig = Rig::on_disk(directory);
    // 3.6 MB on a disk of 1 MiB, with a budget of 1 GiB.
    fill(&rig, 0..120).await;
    assert_eq!(rig.cache.occupancy().objects, 120, "memory has them all");
    assert_eq!(count(&rig, 120).await, 120);
    let written = files(directory).len();
    assert!((10..120).contains(&written), "{written} files");
    // Cut to pieces by the full disk or not, what it holds is right.
    drop(rig);
    let rig = Rig::on_disk(directory);
    rig.cache.settle().await;
    let here = count(&rig, 120).await;
    assert!((5..60).contains(&here), "{here} objects");
    rig.says_text(FRESH, "new");
    assert_eq!(rig.get("/new", "").await.text(), "new");
    println!("a full disk is survived");
}

#[tokio::test]
async fn a_full_disk_leaves_the_cache_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=1m,nr_inodes=10k none \"$1\" && shift && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "child_on_a_small_disk"])
        .env(CHILD, directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("is survived"), "{said}\n{errors}");
}

#[tokio::test]
async fn pins_hold_whatever_comes_and_pass_to_what_is_newer() {
    let directory = tempfile::tempdir().unwrap();
    async fn churn(rig: &Rig, range: std::ops::Range<usize>) {
        for n in range {
            fill(rig, n..n + 1).await;
        }
    }
    let settings = Settings {
        directory: Some(directory.path().to_owned()),
        memory_bytes: 300_000,
        disk_bytes: 1_000_000,
        ..Settings::default()
    };
    let rig = Rig::with(&settings);
    for n in 0..5 {
        let whole = response(FRESH).map(|()| body(n));
        assert!(rig.cache.insert(&key(&format!("/{n}")), &headers(""), whole, true), "{n}");
    }
    rig.cache.settle().await;
    // Far more than there is room for, and other answers under a pinned address.
    churn(&rig, 100..300).await;
    for n in 0..20 {
        let fields = format!("{FRESH}; vary: x");
        let whole = response(&fields).map(|()| Bytes::from_static(b"a variant"));
        rig.cache.insert(&key("/0"), &headers(&format!("x: {n}")), whole, false);
    }
    for n in 1..5 {
        assert_eq!(rig.get(&format!("/{n}"), "").await.body.unwrap(), body(n), "{n}");
    }
    assert_eq!(rig.asked(), 0);
    // What the origin says later is pinned in its place.
    rig.wait(601);
    rig.says_text(FRESH, "newer");
    assert_eq!(rig.get("/1", "").await.text(), "newer");
    churn(&rig, 300..400).await;
    assert_eq!((rig.get("/1", "").await.text(), rig.asked()), ("newer", 1));
    // One that cannot be stored does not take its place: it has to be confirmed.
    rig.says_text("cache-control: no-store", "not to be stored");
    assert_eq!(rig.get("/2", "").await.text(), "not to be stored");
    rig.says_text("304; cache-control: max-age=600", "");
    assert_eq!(rig.get("/2", "").await.body.unwrap(), body(2));
    // All that over a restart; and what is unpinned goes.
    assert!(rig.cache.pin(&key("/3"), &headers(""), false));
    rig.cache.settle().await;
    drop(rig);
    let rig = Rig::with(&settings);
    rig.cache.settle().await;
    rig.wait(601);
    churn(&rig, 100..300).await;
    let knows = |path: &str| rig.cache.pin(&key(path), &headers(""), true);
    assert_eq!(["/1", "/2", "/3", "/4"].map(knows), [true, true, false, true]);
    assert!(usage(directory.path()) <= 1_000_000);
}
