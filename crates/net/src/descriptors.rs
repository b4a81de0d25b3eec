//! Descriptors: the process's limit, and its division among pools of flows.
//!
//! A full table of descriptors refuses everybody: passengers, DNS and the status file. Therefore
//! pools of flows get only descriptors outside a reserve. If a pool is full, its largest holder
//! makes room.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Maximum number of descriptors reserved for listeners, files, the link and the status; at most
/// half of a small limit.
const MAX_RESERVED: usize = 512;

/// A pool of entries, each with descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// Name of the limit in the log and in `bentpipe check`.
    pub name: &'static str,
    /// Maximum number of entries.
    pub most: usize,
    /// Descriptors of one entry.
    pub each: usize,
}

impl Pool {
    const fn descriptors(self) -> usize {
        self.most.saturating_mul(self.each)
    }
}

/// Raises the descriptor limit to the system's maximum. With two descriptors per flow, the default
/// of 1,024 would not suffice.
pub fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        tracing::warn!(%error, soft, "the limit on descriptors stays low: flows may fail");
    }
}

/// Number of descriptors that this process may open after [`raise_descriptor_limit`].
pub fn descriptor_limit() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE);
    limit.map_or(usize::MAX, |(_, hard)| usize::try_from(hard).unwrap_or(usize::MAX))
}

/// Returns `true` if the process or the system has no descriptor left.
pub fn is_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Number of descriptors of `limit` that no flow may take.
pub fn reserved(limit: usize) -> usize {
    MAX_RESERVED.min(limit / 2)
}

/// Lowers the pools, in proportion, until they fit into `available` descriptors. Each keeps at
/// least one entry.
pub fn fit<const N: usize>(pools: [Pool; N], available: usize) -> [Pool; N] {
    let wanted = pools.iter().fold(0_usize, |sum, pool| sum.saturating_add(pool.descriptors()));
    if wanted <= available {
        return pools;
    }
    pools.map(|pool| {
        let share = pool.most as u128 * available as u128 / wanted as u128;
        let most = usize::try_from(share).unwrap_or(pool.most).clamp(pool.most.min(1), pool.most);
        Pool { most, ..pool }
    })
}

/// Returns a warning about the pools that `fitted` lowers because of `limit`.
pub fn shortage(pools: &[Pool], fitted: &[Pool], limit: usize) -> Option<String> {
    let lowered = pools.iter().zip(fitted).filter(|(wanted, has)| has.most < wanted.most);
    let lowered: Vec<_> = lowered
        .map(|(wanted, has)| format!("{} {} instead of {}", wanted.name, has.most, wanted.most))
        .collect();
    let wanted = pools.iter().fold(0_usize, |sum, pool| sum.saturating_add(pool.descriptors()));
    let wanted = wanted.saturating_add(MAX_RESERVED);
    (!lowered.is_empty()).then(|| {
        format!(
            "this process may open {limit} descriptors, and its limits need {wanted}; they are \
             lowered: {}. Allow {wanted} with LimitNOFILE= in the unit or `ulimit -Hn`, or \
             configure lower limits",
            lowered.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOLS: [Pool; 3] = [
        Pool { name: "streams", most: 4_096, each: 2 },
        Pool { name: "datagrams", most: 8_192, each: 1 },
        Pool { name: "others", most: 0, each: 1 },
    ];

    #[test]
    fn pools_that_fit_keep_their_limits() {
        assert_eq!(fit(POOLS, 16_384), POOLS);
        assert_eq!(shortage(&POOLS, &POOLS, 16_384 + MAX_RESERVED), None);
    }

    #[test]
    fn pools_that_do_not_fit_are_lowered_in_proportion() {
        let fitted = fit(POOLS, 512);
        assert_eq!(fitted.map(|pool| pool.most), [128, 256, 0]);
        let said = shortage(&POOLS, &fitted, 1_024).unwrap();
        assert!(said.contains("streams 128 instead of 4096, datagrams 256 instead of 8192."));
        assert!(said.contains("LimitNOFILE=") && said.contains("need 16896"), "{said}");
        assert_eq!(fit(POOLS, 0).map(|pool| pool.most), [1, 1, 0]);
    }

    #[test]
    fn a_small_limit_is_divided_in_halves() {
        assert_eq!([0, 100, 1_024, 524_288].map(reserved), [0, 50, 512, 512]);
    }
}
