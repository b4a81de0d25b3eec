//! A hostile page, given to the scanners of HTML and CSS.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|page: &[u8]| {
    bentpipe_prefetch::fuzz::scan(page);
});
