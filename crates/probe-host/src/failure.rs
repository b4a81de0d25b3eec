//! Errors of the system in the words of OONI's data format.

use std::io;

/// The failure string of an error.
pub fn name(error: &io::Error) -> String {
    let known = match error.raw_os_error() {
        Some(libc::ENETUNREACH) => "network_unreachable",
        Some(libc::EHOSTUNREACH) => "host_unreachable",
        Some(libc::ENETDOWN) => "network_down",
        Some(libc::ECONNREFUSED) => "connection_refused",
        Some(libc::ECONNRESET) => "connection_reset",
        Some(libc::ETIMEDOUT) => "generic_timeout_error",
        Some(libc::EACCES | libc::EPERM) => "permission_denied",
        Some(libc::EADDRNOTAVAIL) => "address_not_available",
        Some(libc::ENOBUFS | libc::EAGAIN) => "no_buffer_space",
        Some(libc::EMSGSIZE) => "message_size",
        _ if matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => TIMEOUT,
        _ => return format!("unknown_failure: {error}"),
    };
    known.into()
}

/// The failure string of silence.
pub const TIMEOUT: &str = "generic_timeout_error";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_errors_have_short_names() {
        assert_eq!(name(&io::Error::from_raw_os_error(libc::ENETUNREACH)), "network_unreachable");
        assert_eq!(name(&io::ErrorKind::TimedOut.into()), TIMEOUT);
        assert!(name(&io::Error::other("odd")).starts_with("unknown_failure: odd"));
    }
}
