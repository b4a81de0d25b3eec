//! The files that outlive a gateway, as somebody left them: what it learned of its path, the preload's
//! manifest, request and report.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    bentpipe_gateway::fuzz::kept_files(bytes);
});
