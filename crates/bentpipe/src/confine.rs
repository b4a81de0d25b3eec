//! Confinement of a running gateway to the rights that it needs.
//!
//! All of it is of the thread that calls and of threads it starts later, so it comes before the
//! runtime's threads.

use std::io;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability, CapsHashSet};
use landlock::{
    ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};

/// Capabilities that a gateway uses if it was given them: interception rules, raw sockets, and ports
/// below 1024.
const NEEDED: [Capability; 3] =
    [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_NET_BIND_SERVICE];

/// Confines this thread and all that it starts: capabilities, new privileges, core dumps, and files
/// outside of `writable`. Says what this system cannot do, and goes on.
pub fn confine(writable: &[PathBuf]) {
    let steps: [(&str, io::Result<()>); 4] = [
        ("give up capabilities", give_up_capabilities()),
        ("forbid new privileges", nix::sys::prctl::set_no_new_privs().map_err(Into::into)),
        ("forbid core dumps", nix::sys::prctl::set_dumpable(false).map_err(Into::into)),
        ("forbid writing elsewhere", write_only_to(writable)),
    ];
    for (what, done) in steps {
        if let Err(error) = done {
            tracing::warn!(%error, "not confined: this system does not let the gateway {what}");
        }
    }
}

/// Keeps [`NEEDED`]. Root keeps its right to files, too: those of the configuration may be another
/// user's.
fn give_up_capabilities() -> io::Result<()> {
    let root = nix::unistd::geteuid().is_root();
    let files = root.then_some(Capability::CAP_DAC_OVERRIDE);
    let needed: CapsHashSet = NEEDED.into_iter().chain(files).collect();
    let had = caps::read(None, CapSet::Permitted).map_err(io::Error::other)?;
    let kept: CapsHashSet = had.intersection(&needed).copied().collect();
    // No program is started that could be given them.
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Forbids every change to files outside of `folders`.
fn write_only_to(folders: &[PathBuf]) -> io::Result<()> {
    let restricted = restrict(folders).map_err(io::Error::other)?;
    match restricted {
        RulesetStatus::NotEnforced => Err(io::Error::other("no Landlock in this kernel")),
        _ => Ok(()),
    }
}

fn restrict(folders: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let write = AccessFs::from_write(ABI::V3);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(write)?
        .create()?;
    for folder in folders {
        // A folder that is missing is somebody else's error, which says more.
        if let Some(folder) = existing(folder) {
            rules = rules.add_rule(PathBeneath::new(folder, write))?;
        }
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// `folder`, or the one above it in which it can be made.
fn existing(folder: &Path) -> Option<PathFd> {
    let absolute = std::path::absolute(folder).ok()?;
    absolute.ancestors().take(2).find_map(|folder| PathFd::new(folder).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_elsewhere_cannot_be_changed() {
        let [inside, outside] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let file = outside.path().join("there");
        std::fs::write(&file, "as it was").unwrap();
        // What is confined is the thread.
        let (made, changed, removed) = std::thread::scope(|scope| {
            let confined = scope.spawn(|| {
                if let Err(error) = write_only_to(&[inside.path().to_owned()]) {
                    eprintln!("SKIPPED: {error}");
                    return None;
                }
                let made = std::fs::write(inside.path().join("new"), "new");
                let renamed = made.and_then(|()| {
                    std::fs::rename(inside.path().join("new"), inside.path().join("moved"))
                });
                let changed = std::fs::write(&file, "changed");
                Some((renamed, changed, std::fs::remove_file(&file)))
            });
            confined.join().unwrap()
        })
        .unwrap_or_else(|| (Ok(()), denied(), denied()));
        made.unwrap();
        for refused in [changed, removed] {
            assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "as it was");
    }

    fn denied() -> io::Result<()> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    #[test]
    fn a_missing_folder_may_be_made() {
        let folder = tempfile::tempdir().unwrap();
        assert!(existing(&folder.path().join("there")).is_some());
        assert!(existing(&folder.path().join("not/there")).is_none());
    }
}
