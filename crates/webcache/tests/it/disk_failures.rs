//! The directory after crashes, and on a full disk.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::Rig;
use crate::common::disk::{FRESH, count, files, fill, usage};

/// Set in child processes that a test kills, or runs in a namespace of their own.
const CHILD: &str = "BENTPIPE_WEBCACHE_TEST_DIRECTORY";

/// A process that stores objects until it is killed.
#[tokio::test]
#[ignore = "started by the test below"]
async fn child_that_stores_until_killed() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let rig = Rig::on_disk(Path::new(&directory));
    for n in 0.. {
        fill(&rig, n % 500..n % 500 + 1).await;
        println!("stored {n}");
    }
}

#[tokio::test]
async fn a_kill_during_writes_damages_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for round in 0..6_u64 {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--ignored",
                "--exact",
                "--nocapture",
                "disk_failures::child_that_stores_until_killed",
            ])
            .env(CHILD, directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // SIGKILL after a different number of objects in each round.
        let enough = 40 + round * 17;
        let stored = lines.by_ref().filter(|line| line.as_ref().unwrap().contains("stored"));
        assert_eq!(stored.take(enough as usize).count(), enough as usize);
        child.kill().unwrap();
        child.wait().unwrap();
        let rig = Rig::on_disk(directory.path());
        rig.cache.settle().await;
        // All objects that the child reported as stored are present and undamaged.
        assert!(count(&rig, 500).await >= enough as usize, "round {round}");
        rig.cache.settle().await;
        assert_eq!(usage(directory.path()), rig.cache.occupancy().disk_bytes);
    }
}

/// A process in a namespace, with a small file system mounted at the directory.
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
    // Whatever the full disk truncated, all served bodies are right.
    drop(rig);
    let rig = Rig::on_disk(directory);
    rig.cache.settle().await;
    let here = count(&rig, 120).await;
    assert!((5..60).contains(&here), "{here} objects");
    rig.reply_text(FRESH, "new");
    assert_eq!(rig.get("/new", "").await.text(), "new");
    println!("a full disk is survived");
}

#[tokio::test]
async fn a_full_disk_leaves_a_cache_in_memory() {
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=1m,nr_inodes=10k none \"$1\" && shift && exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "disk_failures::child_on_a_small_disk"])
        .env(CHILD, directory.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("is survived"), "{said}\n{errors}");
}
