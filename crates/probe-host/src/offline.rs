//! Report and export of a store. Neither uses the network.

use std::convert::Infallible;
use std::fs;
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::Path;

use bentpipe_probe::address::{AsTable, NotATable};
use bentpipe_probe::analysis::Analysis;
use bentpipe_probe::profile::Recording;
use bentpipe_probe::record::{Measurement, Session, envelope};
use bentpipe_probe::report::page;
use bentpipe_probe::track::{NotATrack, Track};

use crate::args::{Export, Report};
use crate::error::Error;
use crate::store::{Item, read};

/// Largest table of autonomous systems: the whole Internet's has about 45 MB.
const MAX_AS_TABLE: u64 = 256 << 20;

/// Largest file of a track, and most tracks of a report: 20 × 8 MB of fixes.
const MAX_TRACK: u64 = 64 << 20;
const MAX_TRACKS: usize = 20;

/// Writes the page of a store.
pub fn report(args: &Report) -> Result<(), Error> {
    let mut analysis = Analysis::default();
    if let Some(file) = &args.as_table {
        analysis.addresses.set_table(as_table(file)?);
    }
    if args.tracks.len() > MAX_TRACKS {
        return Err(Error::Arguments(format!("name at most {MAX_TRACKS} tracks")));
    }
    for file in &args.tracks {
        analysis.tracks.push(track(file)?);
    }
    add(&mut analysis, &args.store)?;
    analysis.end();
    fs::write(&args.out, page(&analysis)).map_err(|source| output(&args.out, source))
}

/// Writes the records of a store as JSON lines, or a profile.
pub fn export(args: &Export) -> Result<(), Error> {
    let write = |out: &mut dyn Write| match &args.profile {
        Some(name) => Ok(out.write_all(profile(&args.store, name)?.as_bytes())),
        None => lines(&args.store, out),
    };
    match &args.out {
        Some(path) => {
            let file = fs::File::create(path).map_err(|source| output(path, source))?;
            let mut out = BufWriter::new(file);
            write(&mut out)?.and_then(|()| out.flush()).map_err(|source| output(path, source))
        }
        None => {
            let mut out = BufWriter::new(io::stdout().lock());
            match write(&mut out)?.and_then(|()| out.flush()) {
                // A reader such as `head` may have enough.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
                other => {
                    other.map_err(|source| Error::Output { what: "standard output".into(), source })
                }
            }
        }
    }
}

/// The profile of the longest session: its main target's pings.
fn profile(store: &Path, name: &str) -> Result<String, Error> {
    let analysis = analysis(store)?;
    let absent = || Error::NoProfile { store: store.to_owned() };
    let (key, figures) = analysis.pings.main().ok_or_else(absent)?;
    let windows = |session: usize| figures.windows.keys().filter(|(of, _)| *of == session).count();
    let longest =
        (0..analysis.sessions.len()).max_by_key(|session| windows(*session)).ok_or_else(absent)?;
    let (mut recording, mut current, mut start_us) = (Recording::default(), 0, 0);
    let Ok(()) = read(store, |item| {
        match item {
            Item::Session(session) => {
                current += 1;
                start_us = session.began.boot_us;
            }
            Item::Record(record) => {
                if let Measurement::Ping(ping) = &record.measurement
                    && current == longest + 1
                    && (&ping.target, ping.address, ping.method)
                        == (&key.name, key.address, key.method)
                {
                    recording.add(record.began.boot_us.saturating_sub(start_us), ping);
                }
            }
        }
        Ok::<(), Infallible>(())
    })?;
    let began = analysis.sessions[longest].began.utc();
    let about = format!("recorded from {began} UTC, pings to {} by {}", key.name, key.method);
    recording.toml(name, &about).ok_or_else(absent)
}

fn analysis(store: &Path) -> Result<Analysis, Error> {
    let mut analysis = Analysis::default();
    add(&mut analysis, store)?;
    Ok(analysis)
}

fn as_table(file: &Path) -> Result<AsTable, Error> {
    let text = text_of(file, MAX_AS_TABLE)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let fault = |error: NotATable| Error::Input { file: file.to_owned(), why: error.to_string() };
    AsTable::parse(&name, &text).map_err(fault)
}

fn track(file: &Path) -> Result<Track, Error> {
    let text = text_of(file, MAX_TRACK)?;
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let fault = |error: NotATrack| Error::Input { file: file.to_owned(), why: error.to_string() };
    Track::parse(&name, &text).map_err(fault)
}

/// Reads a text file of at most `most` bytes.
fn text_of(file: &Path, most: u64) -> Result<String, Error> {
    let fault = |why: String| Error::Input { file: file.to_owned(), why };
    let open = fs::File::open(file).map_err(|error| fault(error.to_string()))?;
    let mut text = String::new();
    let read = open.take(most + 1).read_to_string(&mut text);
    read.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => {
            fault("it is not text. If it is compressed, unpack it first".into())
        }
        _ => fault(error.to_string()),
    })?;
    if text.len() as u64 > most {
        return Err(fault(format!("it has more than {most} bytes")));
    }
    Ok(text)
}

fn add(analysis: &mut Analysis, store: &Path) -> Result<(), Error> {
    let Ok(()) = read(store, |item| {
        match item {
            Item::Session(session) => analysis.begin(session),
            Item::Record(record) => analysis.add(&record),
        }
        Ok::<(), Infallible>(())
    })?;
    Ok(())
}

fn lines(store: &Path, out: &mut dyn Write) -> Result<io::Result<()>, Error> {
    let mut current: Option<Session> = None;
    let written = read(store, |item| match (item, &current) {
        (Item::Session(session), _) => {
            current = Some(session);
            Ok(())
        }
        (Item::Record(record), Some(session)) => writeln!(out, "{}", envelope(session, &record)),
        (Item::Record(_), None) => Ok(()),
    })?;
    Ok(written)
}

fn output(path: &Path, source: io::Error) -> Error {
    Error::Output { what: path.display().to_string(), source }
}
