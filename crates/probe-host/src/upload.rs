//! The upload of records to a receiver: consent, then batches over a connection of lower effort.
//!
//! | module | contents |
//! |---|---|
//! | `link` | requests to the receiver, with their rate |

mod link;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};

use bentpipe_probe::upload::{self, End, Shared};
use url::{Host, Url};

use crate::args::Upload;
use crate::error::Error;
use crate::store::{self, Unsent};
use crate::{clock, token};
use link::Link;

/// Least rate, and part of the measured rate that an upload takes.
const MIN_BPS: u64 = 64_000;
const PART: u64 = 20;

/// Shows the records, asks for consent if it is needed, and sends them.
pub fn run(args: &Upload) -> Result<(), Error> {
    let to = receiver(&args.to)?;
    let place = args.store.clone().or_else(store::default_place);
    let place = place.ok_or_else(|| Error::Arguments("name the store".into()))?;
    if args.dry_run {
        let shared = Unsent::show(&place, to.as_str())?.shared()?;
        return say(&format!("Nothing is sent. An upload to {to} shares:\n{shared}"));
    }
    let token = args.token_file.as_deref().map(token::read).transpose()?.unwrap_or_default();
    let mut unsent = Unsent::open(&place, to.as_str())?;
    let shared = unsent.shared()?;
    if shared.records() == 0 {
        return say(&format!("{to} has all records of {}", place.display()));
    }
    agree(args, &to, &mut unsent, &shared)?;
    let rate = unsent.measured_bps(clock::now()).map_or(MIN_BPS, |bps| MIN_BPS.max(bps / PART));
    let mut link = Link::new(to.clone(), &token, rate)
        .map_err(|source| Error::System { what: "starting the upload", source })?;
    let sent = match upload::run(&mut unsent, &mut link) {
        Ok(sent) => sent,
        Err(End::Refused(why)) => return Err(Error::Refused { to: to.into(), why }),
        Err(End::Source(error)) => return Err(error.into()),
    };
    let end = if sent.stopped { "stopped; the next upload continues here" } else { "complete" };
    say(&format!(
        "{} records in {} batches of {} bytes; {} bytes of requests, {end}",
        sent.records,
        sent.batches,
        sent.bytes,
        link.sent()
    ))
}

/// A receiver that nobody can listen to on the way.
fn receiver(text: &str) -> Result<Url, Error> {
    let fault = || {
        Error::Arguments(format!(
            "--to {text}: write https://HOST/, without a user name or a query. http:// is for literal loopback addresses"
        ))
    };
    let mut url = Url::parse(text).map_err(|_| fault())?;
    let is_private = match (url.scheme(), url.host()) {
        ("https", Some(_)) => true,
        ("http", Some(Host::Ipv4(v4))) => v4.is_loopback(),
        ("http", Some(Host::Ipv6(v6))) => v6.is_loopback(),
        _ => false,
    };
    let is_plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
    if !is_private || !is_plain {
        return Err(fault());
    }
    url.set_fragment(None);
    if !url.path().ends_with('/') {
        url.set_path(&format!("{}/", url.path()));
    }
    Ok(url)
}

/// Shows what is shared, and asks for consent to kinds of records that the receiver has not got yet.
fn agree(args: &Upload, to: &Url, unsent: &mut Unsent, shared: &Shared) -> Result<(), Error> {
    let (kinds, consented) = (shared.kinds(), unsent.consented()?);
    let new: BTreeSet<&str> =
        kinds.iter().copied().filter(|kind| !consented.contains(*kind)).collect();
    say(&format!("An upload to {to} shares:\n{shared}"))?;
    if new.is_empty() {
        return Ok(());
    }
    if !args.yes {
        let list = new.iter().copied().collect::<Vec<_>>().join(", ");
        if !io::stdin().is_terminal() {
            return Err(Error::Arguments(format!(
                "you have not agreed yet to share these kinds of records with {to}: {list}. Agree with --yes, or run the \
                 upload in a terminal"
            )));
        }
        print!("Share the kinds {list} now and later? [y/N] ");
        let mut answer = String::new();
        let asked = io::stdout().flush().and_then(|()| io::stdin().read_line(&mut answer));
        asked.map_err(|source| Error::Output { what: "the question".into(), source })?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Err(Error::Arguments("nothing was sent".into()));
        }
    }
    Ok(unsent.consent(&new)?)
}

fn say(text: &str) -> Result<(), Error> {
    let written = writeln!(io::stdout(), "{text}");
    written.map_err(|source| Error::Output { what: "standard output".into(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_are_private() {
        let path = |text| receiver(text).map(String::from);
        assert_eq!(path("https://host.example/a").unwrap(), "https://host.example/a/");
        assert_eq!(path("http://127.0.0.1:80/#x").unwrap(), "http://127.0.0.1/");
        assert!(path("http://[::1]:81").is_ok());
        for text in
            ["http://host.example/", "http://192.0.2.1/", "http://localhost/", "host", "ftp://h/"]
        {
            assert!(path(text).is_err(), "{text}");
        }
        for text in ["https://user@h/", "https://:secret@h/", "https://h/?q"] {
            assert!(path(text).is_err(), "{text}");
        }
    }
}
