//! A DNS message, as a query of a passenger and as an answer of the ground.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bentpipe_dns::fuzz_message(bytes);
});
