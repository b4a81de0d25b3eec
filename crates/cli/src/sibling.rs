//! The other program of an installation. The gateways are in `bentpipe`, the lab is in
//! `bentpipe-lab`; each finds the other beside itself or on the search path.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Name of the program with the gateways.
pub const GATEWAYS: &str = "bentpipe";

/// Name of the program with the lab.
pub const LAB: &str = "bentpipe-lab";

/// The program is not installed.
#[derive(Debug)]
pub struct NotFound {
    name: &'static str,
    beside: Option<PathBuf>,
}

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, beside } = self;
        write!(f, "the program {name} is not installed: it is neither ")?;
        if let Some(folder) = beside {
            write!(f, "in {} nor ", folder.display())?;
        }
        write!(
            f,
            "on the PATH\n\
             install it there; in the source tree `cargo build --release --bin {name}` builds it"
        )
    }
}

impl std::error::Error for NotFound {}

/// Returns the path of the program `name`: beside this program, otherwise on the search path.
pub fn find(name: &'static str) -> Result<PathBuf, NotFound> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent);
    find_in(name, beside, env::var_os("PATH").as_deref())
}

/// Replaces this process by the program `name` with `arguments`. Returns only if it fails.
pub fn become_program(name: &'static str, arguments: &[OsString]) -> Box<dyn std::error::Error> {
    let path = match find(name) {
        Ok(path) => path,
        Err(error) => return error.into(),
    };
    let error: io::Error = Command::new(&path).args(arguments).exec();
    format!("{} cannot be started: {error}", path.display()).into()
}

fn find_in(
    name: &'static str,
    beside: Option<&Path>,
    path: Option<&OsStr>,
) -> Result<PathBuf, NotFound> {
    let on_path = path.map(env::split_paths).into_iter().flatten();
    // An empty entry means the current folder, which may be anybody's.
    let folders = beside.map(Path::to_owned).into_iter().chain(on_path);
    let mut candidates =
        folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name));
    candidates
        .find(|program| is_program(program))
        .ok_or_else(|| NotFound { name, beside: beside.map(Path::to_owned) })
}

fn is_program(path: &Path) -> bool {
    let executable = 0o111;
    path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & executable != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn program(folder: &Path, mode: u32) -> PathBuf {
        let path = folder.join(LAB);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn a_program_is_found_beside_this_one_first_and_then_on_the_path() {
        let [own, plain, path] = [(); 3].map(|()| tempfile::tempdir().unwrap());
        program(plain.path(), 0o644);
        let on_path = program(path.path(), 0o755);
        let search = env::join_paths([Path::new(""), plain.path(), path.path()]).unwrap();
        let find = || find_in(LAB, Some(own.path()), Some(&search));
        assert_eq!(find().unwrap(), on_path);
        let beside = program(own.path(), 0o755);
        assert_eq!(find().unwrap(), beside);
    }

    #[test]
    fn a_missing_program_is_named_with_the_folder_that_should_have_it() {
        let own = tempfile::tempdir().unwrap();
        let said = find_in(LAB, Some(own.path()), None).unwrap_err().to_string();
        let place = format!("neither in {} nor on the PATH", own.path().display());
        assert!(said.contains("bentpipe-lab is not installed") && said.contains(&place), "{said}");
    }
}
