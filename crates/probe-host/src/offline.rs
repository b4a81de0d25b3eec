//! Report and export of a store. Neither uses the network.

use std::fs;
use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use bentpipe_probe::analysis::Analysis;
use bentpipe_probe::record::{Session, envelope};
use bentpipe_probe::report::page;

use crate::args::{Export, Report};
use crate::error::Error;
use crate::store::{Item, read};

/// Writes the page of a store.
pub fn report(args: &Report) -> Result<(), Error> {
    let mut analysis = Analysis::default();
    let Ok(()) = read(&args.store, |item| {
        match item {
            Item::Session(session) => analysis.begin(session),
            Item::Record(record) => analysis.add(&record),
        }
        Ok::<(), std::convert::Infallible>(())
    })?;
    fs::write(&args.out, page(&analysis)).map_err(|source| output(&args.out, source))
}

/// Writes the records of a store as JSON lines.
pub fn export(args: &Export) -> Result<(), Error> {
    match &args.out {
        Some(path) => {
            let file = fs::File::create(path).map_err(|source| output(path, source))?;
            lines(&args.store, BufWriter::new(file))?.map_err(|source| output(path, source))
        }
        None => match lines(&args.store, BufWriter::new(io::stdout().lock()))? {
            // A reader such as `head` may have enough.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            other => {
                other.map_err(|source| Error::Output { what: "standard output".into(), source })
            }
        },
    }
}

fn lines(store: &Path, mut out: impl Write) -> Result<io::Result<()>, Error> {
    let mut current: Option<Session> = None;
    let written = read(store, |item| match (item, &current) {
        (Item::Session(session), _) => {
            current = Some(session);
            Ok(())
        }
        (Item::Record(record), Some(session)) => writeln!(out, "{}", envelope(session, &record)),
        (Item::Record(_), None) => Ok(()),
    })?;
    Ok(written.and_then(|()| out.flush()))
}

fn output(path: &Path, source: io::Error) -> Error {
    Error::Output { what: path.display().to_string(), source }
}
