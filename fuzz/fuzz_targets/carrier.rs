//! Records of a carrier, from a hostile hub, air or egress.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bentpipe_anchor::fuzz::records(bytes);
});
