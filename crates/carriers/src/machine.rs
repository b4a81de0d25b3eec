//! Properties of the machine that the gateway runs on.

use std::fs;

use bentpipe_units::ByteSize;

/// Memory of the machine, or of the gateway's control group if that is less. `None` if the kernel
/// reports neither.
pub fn memory() -> Option<ByteSize> {
    let whole = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let part = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let part = part.and_then(|text| text.trim().parse().ok());
    [whole, part].into_iter().flatten().min().map(ByteSize::from_bytes)
}

/// Total of `/proc/meminfo`, in bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read_in_kibibytes() {
        let text = "MemTotal:        4028412 kB\nMemFree:          201480 kB\n";
        assert_eq!(total(text), Some(4_028_412 << 10));
        assert_eq!(total("MemFree: 1 kB\n"), None);
        assert_eq!(total("MemTotal: much\n"), None);
    }
}
