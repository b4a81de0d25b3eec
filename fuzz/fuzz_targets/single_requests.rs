//! A hostile cabin's bytes, given to what reads where a stream leads and to what unpacks heads of single requests; a
//! hostile ground's, given to what reads the answers of sites; and the other way round.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bentpipe_prefetch::fuzz::single(bytes);
    bentpipe_gateway::fuzz::stream_opening(bytes);
});
