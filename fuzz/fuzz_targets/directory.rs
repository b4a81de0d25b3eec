//! Frames of the fleet's directory, from a hostile neighbour.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bentpipe_directory::fuzz::neighbour(bytes);
});
