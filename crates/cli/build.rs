//! Sets `BENTPIPE_VERSION`: the release, with the commit if it is known.
//!
//! The commit is taken from the environment variable `BENTPIPE_COMMIT`, from an archive of the
//! repository (git fills in the file `commit`), or from git. Without any of them the version stands
//! alone.

use std::path::Path;
use std::process::Command;

/// Length of an abbreviated commit.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=BENTPIPE_COMMIT");
    println!("cargo::rerun-if-changed=commit");
    let release = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = std::env::var("BENTPIPE_COMMIT").ok().filter(|commit| !commit.is_empty());
    let version = match commit.or_else(archived).or_else(checked_out) {
        Some(commit) => format!("{release} ({commit})"),
        None => release,
    };
    println!("cargo::rustc-env=BENTPIPE_VERSION={version}");
}

/// The commit of an archive made by `git archive`.
fn archived() -> Option<String> {
    let text = std::fs::read_to_string("commit").ok()?;
    let commit = text.trim();
    let is_commit = commit.len() >= DIGITS && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_commit.then(|| commit[..DIGITS].to_owned())
}

/// The commit of a working tree.
fn checked_out() -> Option<String> {
    // A tree without git may lie in the working tree of something else.
    if !Path::new("../../.git").exists() {
        return None;
    }
    // The log of HEAD grows with every commit and every checkout.
    for file in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", file])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
