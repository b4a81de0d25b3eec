//! The journal of the cache, as somebody left it.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bentpipe_dns::fuzz_journal(bytes);
});
