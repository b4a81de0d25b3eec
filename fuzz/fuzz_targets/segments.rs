//! The content of a hostile peer's packet, given to AeroTCP's parser.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|content: &[u8]| {
    bentpipe_aerotcp::fuzz(content);
});
