//! A hostile half's bytes, given to the parsers of Split HTTP in both directions.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bentpipe_prefetch::fuzz::push(bytes);
});
