//! A hostile cabin's bytes, given to what unpacks heads of single requests; and the other way round.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bentpipe_prefetch::fuzz::single(bytes);
});
