//! Raw data of single runs, stored on request.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bentpipe_results::Folder;

use crate::job::Job;

/// A file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct RawError {
    path: PathBuf,
    source: io::Error,
}

/// Calls `make` to write a file of run `run` of a cell, with a name that ends in `what`. The file
/// is `RUN.har`, `RUN.pcapng` and so on, below the cell's name; its folder is created first.
pub fn make<T>(
    raw: &Path,
    job: &Job<'_>,
    run: u32,
    what: &str,
    make: impl FnOnce(&Path) -> io::Result<T>,
) -> Result<T, RawError> {
    let cell = Folder::cell_file(&job.study.name, &job.grid.id, &job.planned.cell);
    let path = raw.join(cell).with_extension(format!("{run}{what}"));
    let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| make(&path));
    made.map_err(|source| RawError { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, Wanted};
    use bentpipe_results::Study;

    #[test]
    fn a_runs_files_lie_together_and_a_folder_that_cannot_be_is_named() {
        let studies = [Study::named("aerotcp").unwrap()];
        let plan = Plan::new(&studies, &Wanted::default()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let name = |what: &str| {
            let path = |path: &Path| fs::write(path, b"").map(|()| path.to_owned());
            make(folder.path(), &plan.jobs[0], 3, what, path).unwrap()
        };
        let (har, pcap) = (name(".har"), name(".pcapng"));
        assert_eq!(har.parent(), pcap.parent());
        let end = |path: &Path| path.to_string_lossy().into_owned();
        assert!(end(&har).ends_with(".3.har") && end(&pcap).ends_with(".3.pcapng"), "{har:?}");
        let refused = make(&har, &plan.jobs[0], 3, ".har", |_| Ok(())).unwrap_err();
        assert!(refused.to_string().contains("3.har"), "{refused}");
    }
}
