//! A packet of a hostile passenger, as the interception gives it to the air gateway.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| {
    bentpipe_gateway::fuzz::packet(packet);
});
