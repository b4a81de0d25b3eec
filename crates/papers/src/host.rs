//! The measuring machine and its programs.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use bentpipe_lab::browser;
use bentpipe_lab::system::kcptun;
use bentpipe_results::Host;

/// Maximum length of a stored version text.
const MAX_VERSION: usize = 100;

/// Describes this machine.
pub fn here() -> Host {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let programs = BTreeMap::new();
    match nix::sys::utsname::uname() {
        Ok(system) => {
            let word = |what: &std::ffi::OsStr| what.to_string_lossy().into_owned();
            Host { name: word(system.nodename()), kernel: word(system.release()), cores, programs }
        }
        Err(_) => Host { name: String::new(), kernel: String::new(), cores, programs },
    }
}

/// Describes this machine, with the versions of external programs that cells may use.
pub fn with_programs() -> Host {
    let chromium = browser::find().and_then(|path| said(&path, &["--version"]));
    // Debian's build reports the version "SELFBUILD", so ask the package first.
    let package = ["-W", "-f", "${Version}", kcptun::PACKAGE];
    let kcptun = said(Path::new("dpkg-query"), &package)
        .or_else(|| said(Path::new(kcptun::CLIENT), &["--version"]));
    let all = [("chromium", chromium), (kcptun::PACKAGE, kcptun)];
    let known = all.into_iter().filter_map(|(name, version)| Some((name.to_owned(), version?)));
    Host { programs: known.collect(), ..here() }
}

/// First output line of a program, if it exists and succeeds.
fn said(program: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().next().filter(|line| output.status.success() && !line.is_empty())?;
    Some(line.trim().chars().take(MAX_VERSION).collect())
}
