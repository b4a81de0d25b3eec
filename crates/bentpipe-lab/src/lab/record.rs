//! `bentpipe lab record`: a proxy that records what a browser loads through it.

use std::net::SocketAddr;
use std::path::PathBuf;

use bentpipe_cli::out::say;
use bentpipe_lab::site::{Authority, Recorder, RecorderSettings};
use clap::Args;

use super::common::Outcome;

/// Arguments of `lab record`.
#[derive(Args)]
pub struct RecordArgs {
    /// Folder to write the site to; files of another site in it are overwritten.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Name of the site [default: the folder's name].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Listening address of the proxy. Anyone who reaches it can reach everything that this machine
    /// can.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8888")]
    listen: SocketAddr,
}

/// Records until Ctrl-C.
pub fn record(args: &RecordArgs) -> Outcome {
    let of_folder = || args.folder.file_name()?.to_str().map(str::to_owned);
    let name = args.name.clone().or_else(of_folder).ok_or("give the site a name: --name NAME")?;
    std::fs::create_dir_all(&args.folder)
        .map_err(|error| format!("cannot make {}: {error}", args.folder.display()))?;
    let authority = Authority::new()?;
    let settings = RecorderSettings::of_this_system(authority.clone());
    let recorder = Recorder::start_here(args.listen, settings)?;
    say!(
        "recording at {}; load the page with an empty cache, then Ctrl-C writes {}:\n\
         chromium --proxy-server=http://{} --user-data-dir=$(mktemp -d) \
         --ignore-certificate-errors-spki-list={} URL",
        recorder.address(),
        args.folder.display(),
        recorder.address(),
        authority.key_hash(),
    );
    tokio::runtime::Runtime::new()?.block_on(tokio::signal::ctrl_c())?;
    let site = recorder.site(&name)?;
    site.write(&args.folder)?;
    say!(
        "{}: {} resources of {} domains, {} bytes; {} left out, for want of room or of a name",
        args.folder.display(),
        site.resources.len(),
        site.domains.len(),
        site.bytes(),
        recorder.left_out(),
    );
    Ok(())
}
