//! The secret that sender and receiver share.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::Error;

/// Longest and shortest token.
const MAX_TOKEN: u64 = 1024;
const MIN_TOKEN: usize = 16;

/// Reads a token. White space around it is not part of it.
pub fn read(file: &Path) -> Result<String, Error> {
    let fault = |why: String| Error::Input { file: file.to_owned(), why };
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| fault(error.to_string()))?;
    let read = opened.take(MAX_TOKEN + 1).read_to_string(&mut text);
    read.map_err(|error| fault(error.to_string()))?;
    let token = text.trim();
    let is_usable = (MIN_TOKEN..=MAX_TOKEN as usize).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_usable.then(|| token.to_owned()).ok_or_else(|| {
        fault(format!(
            "the token must have {MIN_TOKEN} to {MAX_TOKEN} ASCII characters without spaces. `openssl rand -hex 32` makes one"
        ))
    })
}
