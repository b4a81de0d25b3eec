//! `bentpipe keys`.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bentpipe_link::SecretKey;

/// Writes a new private key to `file`, readable by its owner alone, and prints the public key.
pub fn make(file: &Path) -> Result<(), Box<dyn Error>> {
    let mut bytes = [0; bentpipe_link::KEY_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| format!("no randomness from the system: {error}"))?;
    let secret = SecretKey::from_bytes(bytes);
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(|error| explain(file, &error))?;
    writeln!(out, "{}", secret.to_base64())?;
    out.sync_all()?;
    println!("{}", secret.public());
    eprintln!("the private key is in {}; give the line above to the other gateway", file.display());
    Ok(())
}

fn explain(file: &Path, error: &std::io::Error) -> String {
    let hint = match error.kind() {
        ErrorKind::AlreadyExists => {
            "a key is never overwritten: choose another name or move it away"
        }
        ErrorKind::NotFound => "its folder does not exist: make it first",
        ErrorKind::PermissionDenied => "this user may not write there",
        _ => "choose another place",
    };
    format!("cannot write the private key to {}: {error}\n{hint}", file.display())
}
