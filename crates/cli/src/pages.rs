//! Man pages and completions, made from the definition of the command.

use std::error::Error;
use std::io;
use std::path::Path;

use clap::Command;
pub use clap_complete::Shell;

use crate::out;

/// Prints the completions of `shell`.
pub fn complete(command: &mut Command, shell: Shell) -> Result<(), Box<dyn Error>> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, command, name, &mut script);
    out::text(format_args!("{}", String::from_utf8_lossy(&script)));
    Ok(())
}

/// Writes a man page for `command` and each of its subcommands to `folder`.
pub fn man(command: Command, folder: &Path) -> Result<(), Box<dyn Error>> {
    let failed =
        |error: io::Error| format!("cannot write man pages to {}: {error}", folder.display());
    clap_mangen::generate_to(command, folder).map_err(failed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    #[test]
    fn every_command_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let with = Command::new("part").arg(Arg::new("file").long("file").help("A file."));
        man(Command::new("whole").subcommand(with), folder.path()).unwrap();
        assert!(folder.path().join("whole.1").exists());
        let part = std::fs::read_to_string(folder.path().join("whole-part.1")).unwrap();
        assert!(part.contains("A file."), "{part}");
        let nowhere = folder.path().join("missing");
        let error = man(Command::new("whole"), &nowhere).unwrap_err().to_string();
        assert!(error.contains("missing"), "{error}");
    }
}
