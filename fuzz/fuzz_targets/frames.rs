//! A packet of a hostile peer, given to the link's parsers.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|packet: &[u8]| {
    bentpipe_link::fuzz(packet);
});
