//! Sources, repairs and bases of a hostile peer, given to the decoder.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|script: &[u8]| {
    bentpipe_coding::fuzz::decoder(script);
});
