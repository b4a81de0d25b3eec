//! `bentpipe keys`.

use std::error::Error;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bentpipe_cli::log;
use bentpipe_cli::out::{say, show};
use bentpipe_gateway::config::{self, KeyFileError, client_entry, client_token};
use bentpipe_link::SecretKey;

/// Writes a new private key to `file`, readable by its owner alone, and prints the public key.
pub fn make(file: &Path) -> Result<(), Box<dyn Error>> {
    let secret = fresh()?;
    write(file, &secret.to_base64())?;
    say!("{}", secret.public());
    eprintln!(
        "The private key is in {}: it stays on this gateway, as\n\
         private-key-file under [link]. The public key, which was printed, goes into the\n\
         file of the other gateway: into air.toml as peer-public-key under [link], or\n\
         into ground.toml as public-key under [[aircraft]].",
        file.display()
    );
    Ok(())
}

/// Prints the public key of the private key in `file`.
pub fn show(file: &Path) -> Result<(), Box<dyn Error>> {
    log::warnings();
    say!("{}", read(file)?.public());
    Ok(())
}

/// Reads a private key.
pub fn read(file: &Path) -> Result<SecretKey, KeyFileError> {
    config::read_key(file)
}

/// Makes a private key.
pub fn fresh() -> Result<SecretKey, String> {
    Ok(SecretKey::from_bytes(random()?))
}

/// Writes a new token for the standard client `name` to `file`, readable by its owner alone, and
/// prints the entry for the ground gateway's configuration.
pub fn make_token(name: &str, file: &Path) -> Result<(), Box<dyn Error>> {
    let token = client_token(&random()?);
    let entry = client_entry(name, &token)?;
    write(file, &token)?;
    show!("{entry}");
    eprintln!(
        "The token is in {}: give it to the client, which shows it\n\
         with its name. The lines that were printed hold only its hash: they go to the\n\
         end of ground.toml. Restart the ground gateway then.",
        file.display()
    );
    Ok(())
}

fn random() -> Result<[u8; 32], String> {
    let mut bytes = [0; bentpipe_link::KEY_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| format!("no randomness from the system: {error}"))?;
    Ok(bytes)
}

/// Writes a secret to a new file that only its owner may read.
pub fn write(file: &Path, secret: &str) -> Result<(), Box<dyn Error>> {
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .map_err(|error| explain(file, &error))?;
    writeln!(out, "{secret}")?;
    Ok(out.sync_all()?)
}

fn explain(file: &Path, error: &std::io::Error) -> String {
    let hint = match error.kind() {
        ErrorKind::AlreadyExists if file.is_dir() => "it is a folder: name a file in it",
        ErrorKind::AlreadyExists => {
            "a secret is never overwritten: choose another name or move it away"
        }
        ErrorKind::NotFound => "its folder does not exist: make it first",
        ErrorKind::PermissionDenied => "this user may not write there",
        _ => "choose another place",
    };
    format!("cannot write the secret to {}: {error}\n{hint}", file.display())
}
