//! Replies to the probe: ICMP, DNS, portals.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bentpipe_probe::fuzz_packet(bytes);
});
