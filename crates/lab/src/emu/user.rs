//! Getting the right to make networks: being root, or being root of a user namespace of one's own.

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};

use super::error::EmuError;

/// Bits of the kernel's capability sets (`linux/capability.h`).
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// Makes this process able to build emulated networks, or says why it cannot.
///
/// A privileged process stays as it is. Any other moves into a user namespace of its own, in which
/// it is root; its network and its files stay what they were. Call it first thing in `main`: the
/// kernel refuses the move once a second thread runs. Calling it again does no harm.
pub fn enter() -> Result<(), EmuError> {
    if !privileged() {
        let threads = fs::read_dir("/proc/self/task").map_or(1, |tasks| tasks.count());
        if threads > 1 {
            return Err(EmuError::ManyThreads(threads));
        }
        become_root_of_a_user_namespace()?;
    }
    super::tun::probe()
}

/// Returns `true` if the effective capabilities suffice to make and configure network namespaces.
fn privileged() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let needed = 1 << CAP_NET_ADMIN | 1 << CAP_SYS_ADMIN;
    effective & needed == needed
}

/// The caller is mapped to root so that programs it starts (nft, for one) keep the capabilities.
fn become_root_of_a_user_namespace() -> Result<(), EmuError> {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|errno| match errno {
        nix::Error::ENOSPC | nix::Error::EUSERS => EmuError::TooManyNamespaces {
            what: "user namespaces",
            sysctl: "max_user_namespaces",
            source: errno.into(),
        },
        _ => EmuError::NoUserNamespace(errno.into()),
    })?;
    // An unprivileged process may map its group only after giving up setgroups(2).
    write("/proc/self/setgroups", "deny")?;
    write("/proc/self/uid_map", &format!("0 {uid} 1"))?;
    write("/proc/self/gid_map", &format!("0 {gid} 1"))?;
    if privileged() {
        Ok(())
    } else {
        // AppArmor lets the namespace be made but takes its capabilities away.
        Err(EmuError::NoUserNamespace(io::ErrorKind::PermissionDenied.into()))
    }
}

fn write(path: &'static str, text: &str) -> Result<(), EmuError> {
    fs::write(path, text).map_err(|source| match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => EmuError::NoUserNamespace(source),
        _ => EmuError::MapUser { path, source },
    })
}
