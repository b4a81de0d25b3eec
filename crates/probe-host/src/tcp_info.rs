//! The kernel's view of a TCP connection.

use std::os::fd::{AsFd, AsRawFd};

use bentpipe_probe::ndt7::TcpInfo;

/// Reads the kernel's counters; `None` if it refuses.
#[allow(unsafe_code)]
fn read(socket: impl AsFd) -> Option<libc::tcp_info> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `info`, which has them, and all-zero bytes are a
    // valid `tcp_info`, which has integers only.
    let (result, info) = unsafe {
        let place = info.as_mut_ptr().cast();
        let result = libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            place,
            &raw mut length,
        );
        (result, info.assume_init())
    };
    (result == 0).then_some(info)
}

/// Limits the rate at which the kernel sends, repetitions included, except for the first ten segments.
#[allow(unsafe_code)]
pub fn limit_rate(socket: impl AsFd, bytes_per_second: u32) -> bool {
    // SAFETY: the kernel reads four bytes of `bytes_per_second`, which has them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_second).cast(),
            size_of::<u32>() as libc::socklen_t,
        )
    };
    result == 0
}

/// Returns `true` if the kernel sent a segment more than once, such as the SYN of a handshake.
pub fn repeated(socket: impl AsFd) -> bool {
    read(socket).is_some_and(|info| info.tcpi_total_retrans > 0)
}

/// Counters in the form of ndt7, `elapsed_us` after the handshake.
pub fn ndt7(socket: impl AsFd, elapsed_us: u64) -> Option<TcpInfo> {
    let info = read(socket)?;
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    Some(TcpInfo {
        busy_time: signed(info.tcpi_busy_time),
        bytes_acked: signed(info.tcpi_bytes_acked),
        bytes_received: signed(info.tcpi_bytes_received),
        bytes_sent: signed(info.tcpi_bytes_sent),
        bytes_retrans: signed(info.tcpi_bytes_retrans),
        elapsed_time: signed(elapsed_us),
        min_rtt: info.tcpi_min_rtt.into(),
        rtt: info.tcpi_rtt.into(),
        rtt_var: info.tcpi_rttvar.into(),
        r_wnd_limited: signed(info.tcpi_rwnd_limited),
        snd_buf_limited: signed(info.tcpi_sndbuf_limited),
    })
}
