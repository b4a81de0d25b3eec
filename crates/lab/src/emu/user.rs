//! Permission to make networks: as root, or as root of a new user namespace.

use std::fs;
use std::io;

use nix::sched::{CloneFlags, unshare};

use super::error::EmuError;

/// Bits of the kernel's capability sets (`linux/capability.h`).
const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;

/// Enables this process to build emulated networks. The error explains why it cannot.
///
/// A privileged process stays as it is. Any other process moves into a new user namespace, in which
/// it is root; its network and files stay the same. Call this first in `main`, because the kernel
/// refuses the move once a second thread runs. Further calls do nothing.
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

/// Returns `true` if the effective capabilities are enough to make and configure network
/// namespaces.
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

/// Moves into a user namespace. The caller is mapped to root so that the programs it starts (for
/// example nft) keep the capabilities.
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
        // AppArmor allows the namespace but removes its capabilities.
        Err(EmuError::NoUserNamespace(io::ErrorKind::PermissionDenied.into()))
    }
}

fn write(path: &'static str, text: &str) -> Result<(), EmuError> {
    fs::write(path, text).map_err(|source| match source.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => EmuError::NoUserNamespace(source),
        _ => EmuError::MapUser { path, source },
    })
}
