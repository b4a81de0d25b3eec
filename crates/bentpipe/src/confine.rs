//! Confinement of a running gateway to the privileges that it needs.
//!
//! The restrictions apply to the calling thread and to threads it starts later, so they must
//! precede the runtime's threads.

use std::io;
use std::path::{Path, PathBuf};

use caps::{CapSet, Capability, CapsHashSet};
use landlock::{
    ABI, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus,
};

/// Capabilities that a gateway uses if it has them: interception rules, raw sockets, and ports
/// below 1024.
const NEEDED: [Capability; 3] =
    [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_NET_BIND_SERVICE];

/// Confines this thread and its future threads: capabilities, new privileges, core dumps, and
/// writes outside `writable`. Logs restrictions that the system does not support, and continues.
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

/// Drops all capabilities except [`NEEDED`]. Root also keeps access to files, because the
/// configuration's files may belong to another user.
fn give_up_capabilities() -> io::Result<()> {
    let root = nix::unistd::geteuid().is_root();
    let files = root.then_some(Capability::CAP_DAC_OVERRIDE);
    let needed: CapsHashSet = NEEDED.into_iter().chain(files).collect();
    let had = caps::read(None, CapSet::Permitted).map_err(io::Error::other)?;
    let kept: CapsHashSet = had.intersection(&needed).copied().collect();
    // The gateway starts no programs that could inherit capabilities.
    for set in [CapSet::Ambient, CapSet::Inheritable] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept).map_err(io::Error::other)?;
    }
    Ok(())
}

/// Forbids all changes to files outside `folders`.
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
        // A missing folder is reported elsewhere, with a better message.
        if let Some(folder) = existing(folder) {
            rules = rules.add_rule(PathBeneath::new(folder, write))?;
        }
    }
    Ok(rules.restrict_self()?.ruleset)
}

/// Opens `folder`, or its parent, in which it can be created.
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
        // The confinement applies to the thread.
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
