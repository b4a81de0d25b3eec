//! The directory across restarts and damage.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::common::disk::{FRESH, body, count, files, fill, usage};
use crate::common::{Rig, headers, key, response};
use bentpipe_webcache::{Cache, Forwarded, OpenError, Outcome, Rules, Settings};
use bytes::Bytes;
use http_body_util::BodyExt;

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
    // Age continues.
    rig.wait(599);
    assert_eq!(rig.get("/1", "").await.field("age"), "599");
    drop(rig);
    // With a smaller budget the pinned object stays.
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
async fn invalidation_and_validation_outlive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::on_disk(directory.path());
    fill(&rig, 0..2).await;
    rig.cache.changed(&key("/0"), &http::Method::POST, (http::StatusCode::OK, &headers("")));
    rig.wait(601);
    rig.reply_text("304; cache-control: max-age=9999; etag: \"a\"", "");
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
async fn an_unwritable_header_is_deleted_only_if_it_claims_too_much() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::on_disk(directory.path());
    fill(&rig, 0..2).await;
    // The temporary file of a header cannot be written.
    let heads =
        || files(directory.path()).into_iter().filter(|it| it.extension().unwrap() == "head");
    for head in heads() {
        fs::create_dir(head.with_extension("tmp")).unwrap();
    }
    rig.wait(601);
    rig.reply_text("304; cache-control: max-age=600; etag: \"a\"", "");
    assert_eq!(rig.get("/0", "").await.outcome, Outcome::Validated);
    rig.cache.changed(&key("/1"), &http::Method::POST, (http::StatusCode::OK, &headers("")));
    rig.cache.settle().await;
    assert_eq!(rig.get("/0", "").await.outcome, Outcome::Hit, "it is only older there");
    assert_eq!(heads().count(), 1);
    drop(rig);
    let rig = Rig::on_disk(directory.path());
    rig.cache.settle().await;
    rig.wait(601);
    rig.reply_text("304; cache-control: max-age=600; etag: \"a\"", "");
    assert_eq!(rig.get("/0", "").await.outcome, Outcome::Validated);
    rig.reply_text(FRESH, "new");
    assert_eq!(rig.get("/1", "").await.text(), "new");
}

#[tokio::test]
async fn a_directory_belongs_to_one_cache() {
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
        // Every second object has a damaged header, every other one a damaged body.
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
async fn damage_at_run_time_is_detected() {
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
    // Only objects in memory are hits.
    assert!((1..=4).contains(&count(&rig, 30).await));
}

#[tokio::test]
async fn an_unreadable_body_is_fetched_and_its_entry_stays() {
    let directory = tempfile::tempdir().unwrap();
    let settings = Settings {
        directory: Some(directory.path().to_owned()),
        memory_bytes: 1_200_000,
        ..Settings::default()
    };
    let rig = Rig::with(&settings);
    // One body is served from memory, and one from disk in segments.
    fill(&rig, 0..1).await;
    let whole = response(FRESH).map(|()| body(1).repeat(10).into());
    rig.cache.insert(&key("/large"), &headers(""), whole, true);
    for n in 2..80 {
        fill(&rig, n..n + 1).await;
    }
    let bodies = files(directory.path());
    let bodies: Vec<_> = bodies.iter().filter(|it| it.extension().unwrap() == "body").collect();
    // An error that does not concern the file, like having too many open files.
    let aside = |file: &Path| file.with_extension("aside");
    for file in &bodies {
        fs::rename(file, aside(file)).unwrap();
        std::os::unix::fs::symlink(file, file).unwrap();
    }
    for path in ["/0", "/large"] {
        rig.reply_text("cache-control: no-store", "from the origin");
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
    assert_eq!((rig.requests(), rig.cache.pinned().len()), (2, 1));
}

#[tokio::test]
async fn files_unreadable_at_start_are_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let rig = Rig::on_disk(directory.path());
    fill(&rig, 0..2).await;
    drop(rig);
    let heads = files(directory.path());
    let heads: Vec<_> = heads.iter().filter(|it| it.extension().unwrap() == "head").collect();
    // A link to itself exists, but cannot be opened (ELOOP).
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
            // From zero to slightly more than the maximum size.
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
    // The number of stored objects depends on the speed of the disk. When each write is awaited,
    // all that fit are stored.
    for n in 500..505 {
        fill(&rig, n..n + 1).await;
    }
    let now = rig.cache.occupancy();
    assert!(now.memory_bytes <= 300_000 && now.disk_bytes <= 1_000_000, "{now:?}");
    for n in 500..505 {
        assert_eq!(rig.get(&format!("/{n}"), "").await.body.unwrap(), body(n), "what came last");
    }
    assert_eq!(rig.requests(), 0);
}

/// A body of 600 KB that identifies its object.
fn large(n: usize) -> Bytes {
    format!("large {n:02}").repeat(75_000).into()
}

#[tokio::test]
async fn slow_readers_of_large_objects_leave_memory_for_others() {
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
    // More bodies are being read than fit into memory.
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
    // Ranges start and end anywhere.
    for (first, last) in [(0, 0), (65_535, 65_536), (100_000, 300_000), (599_999, 599_999)] {
        let got = rig.get("/large/7", &format!("range: bytes={first}-{last}")).await;
        assert_eq!(
            (got.status.as_u16(), got.body.unwrap()),
            (206, large(7).slice(first..last + 1))
        );
    }
    assert_eq!(rig.requests(), 0);
}

#[tokio::test]
async fn a_body_damaged_while_it_is_read_breaks_off() {
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
    // After the damage was detected, no client gets any of the body.
    rig.reply_text(FRESH, "new");
    assert_eq!(rig.get("/large", "").await.text(), "new");
}

#[tokio::test]
async fn recently_used_objects_stay_longest() {
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
async fn pinned_objects_use_at_most_half_of_the_memory() {
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

#[tokio::test]
async fn pins_survive_churn_and_pass_to_newer_responses() {
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
    // Far more than fits, and other responses under a pinned key.
    churn(&rig, 100..300).await;
    for n in 0..20 {
        let fields = format!("{FRESH}; vary: x");
        let whole = response(&fields).map(|()| Bytes::from_static(b"a variant"));
        rig.cache.insert(&key("/0"), &headers(&format!("x: {n}")), whole, false);
    }
    for n in 1..5 {
        assert_eq!(rig.get(&format!("/{n}"), "").await.body.unwrap(), body(n), "{n}");
    }
    assert_eq!(rig.requests(), 0);
    // A newer response replaces the pinned one and is pinned.
    rig.wait(601);
    rig.reply_text(FRESH, "newer");
    assert_eq!(rig.get("/1", "").await.text(), "newer");
    churn(&rig, 300..400).await;
    assert_eq!((rig.get("/1", "").await.text(), rig.requests()), ("newer", 1));
    // A response that cannot be stored does not replace the pinned one, which must be validated.
    rig.reply_text("cache-control: no-store", "not to be stored");
    assert_eq!(rig.get("/2", "").await.text(), "not to be stored");
    rig.reply_text("304; cache-control: max-age=600", "");
    assert_eq!(rig.get("/2", "").await.body.unwrap(), body(2));
    // The pins survive a restart. An unpinned object is evicted.
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
