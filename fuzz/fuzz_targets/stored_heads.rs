//! The files of the HTTP cache: any bytes are read to an end, and never as what was not written.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| bentpipe_webcache::fuzz_record(bytes));
