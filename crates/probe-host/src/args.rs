//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bentpipe_probe::target::Target;
use bentpipe_units::{ByteSize, Span};

use crate::address::StunServer;
use crate::epb::Provisioned;
use crate::ndt7::Server;
use crate::origin::Tls;

/// Arguments of the probe.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) run: Run,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// Write one HTML page with the figures of a store, beside those of the paper.
    Report(Report),
    /// Write the records of a store as JSON lines, or its longest session as a link profile.
    Export(Export),
    /// Serve objects with serial numbers and trains of packets to probes in flight. Run it on a server on the ground.
    Origin(Origin),
    /// Send the records of a store to a receiver, each once. Nothing is sent before it was shown.
    ///
    /// The upload continues where the last one ended, and tries again after a failure until Ctrl-C. It takes at most 64
    /// kbit/s, or 5 % of the measured rate.
    Upload(Upload),
}

/// Arguments of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Target of pings instead of the usual ones; repeat it for several.
    ///
    /// ADDRESS, icmp:ADDRESS, tcp:ADDRESS:PORT or udp:ADDRESS:PORT, with NAME= in front if you like.
    #[arg(long = "target", value_name = "TARGET")]
    pub targets: Vec<Target>,
    /// Resolver to compare with the machine's own, instead of 1.1.1.1; repeat it for several.
    #[arg(long = "resolver", value_name = "ADDRESS")]
    pub resolvers: Vec<IpAddr>,
    /// File with the names to look up, one a line, instead of the built-in list.
    #[arg(long, value_name = "FILE")]
    pub names: Option<PathBuf>,
    /// Page that always answers 204, by which captive portals are found.
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://connectivitycheck.gstatic.com/generate_204"
    )]
    pub portal_url: String,
    /// API of the network's captive portal (RFC 8908), https://HOST/PATH, if the probe does not learn it from the
    /// network.
    #[arg(long, value_name = "URL")]
    pub portal_api: Option<String>,
    /// Own origin of HTTP objects and of trains of packets, a `bentpipe probe origin`, for example
    /// http://192.0.2.1:8080/.
    #[arg(long, value_name = "URL")]
    pub origin: Option<String>,
    /// Server of ndt7 tests: ws://HOST:PORT/ or wss://HOST/, for example a `bentpipe probe origin`, or m-lab.
    ///
    /// A test takes all that the access gives for 10 s in each direction. `m-lab` is the public service. It publishes
    /// the results with your public address, and it is used about every 6 h.
    #[arg(long, value_name = "SERVER")]
    pub ndt7: Option<Server>,
    /// Measure the EPB ratio each hour, given the provisioned bandwidth: DOWN,UP, for example "20 Mbit/s,2 Mbit/s".
    ///
    /// A test takes 20 MB down at an odd hour of UTC and 2 MB up at an even one, over one connection to the origin.
    #[arg(long, value_name = "RATES", requires = "origin")]
    pub epb: Option<Provisioned>,
    /// Record positions of gpsd, at 127.0.0.1:2947 or ADDRESS:PORT.
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "127.0.0.1:2947"
    )]
    pub gpsd: Option<SocketAddr>,
    /// STUN server that answers with the public address: HOST or HOST:PORT.
    #[arg(long, value_name = "SERVER", default_value = "stun.cloudflare.com:3478")]
    pub stun_server: StunServer,
    /// Page that answers with the client's address, for accesses that block STUN.
    #[arg(long, value_name = "URL", default_value = "http://checkip.amazonaws.com/")]
    pub address_url: String,
    /// File for the records. By default bentpipe/probe.sqlite in $XDG_DATA_HOME or ~/.local/share.
    #[arg(long, value_name = "FILE")]
    pub store: Option<PathBuf>,
    /// Maximum size of the file. A full file ends the storing, not the measuring.
    #[arg(long, value_name = "SIZE", default_value = "1 GB")]
    pub store_limit: ByteSize,
    /// Stop after this time, such as "10 min", instead of running until interrupted.
    #[arg(long = "for", value_name = "TIME")]
    pub length: Option<Span>,
    /// Print nothing but errors.
    #[arg(long)]
    pub quiet: bool,
}

impl Run {
    /// Length of the run, if it is limited.
    pub fn length(&self) -> Option<Duration> {
        self.length.map(Duration::from)
    }
}

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub(crate) struct Report {
    /// Store of a probe, which may be running.
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Table of networks and their autonomous systems, such as iptoasn's ip2asn-combined.tsv, instead of the
    /// built-in table of providers in flight.
    #[arg(long, value_name = "FILE")]
    pub as_table: Option<PathBuf>,
    /// Track of the flight as CSV, GPX, KML, trace of readsb or track of OpenSky; repeat it for several flights.
    #[arg(long = "track", value_name = "FILE")]
    pub tracks: Vec<PathBuf>,
    /// File for the page.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}

/// Arguments of `origin`.
#[derive(Debug, clap::Args)]
pub(crate) struct Origin {
    /// Address and port to listen at, for TCP and UDP.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,
    /// Address and port to listen at for TLS too, for ndt7 clients that need it.
    #[arg(long, value_name = "ADDRESS:PORT", requires_all = ["certificate", "key"])]
    pub tls_listen: Option<SocketAddr>,
    /// PEM file with the certificates for TLS.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub certificate: Option<PathBuf>,
    /// PEM file with the key of the first certificate.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    pub key: Option<PathBuf>,
    /// Folder for the records that probes upload. They are taken under TLS, or from a proxy on this machine.
    #[arg(long, value_name = "FOLDER", requires = "upload_token_file")]
    pub uploads: Option<PathBuf>,
    /// File with the secret of probes that may upload: at least 16 characters.
    #[arg(long, value_name = "FILE", requires = "uploads")]
    pub upload_token_file: Option<PathBuf>,
}

impl Origin {
    /// The place to listen at under TLS, if there is one.
    pub fn tls(&self) -> Option<Tls<'_>> {
        let (listen, certificate, key) = (self.tls_listen?, &self.certificate, &self.key);
        Some(Tls { listen, certificate: certificate.as_deref()?, key: key.as_deref()? })
    }

    /// The folder for uploads and the file with their token, if there are any.
    pub fn uploads(&self) -> Option<(&Path, &Path)> {
        Some((self.uploads.as_deref()?, self.upload_token_file.as_deref()?))
    }
}

/// Arguments of `upload`.
#[derive(Debug, clap::Args)]
pub(crate) struct Upload {
    /// Store of a probe, which may be running. By default bentpipe/probe.sqlite in $XDG_DATA_HOME or ~/.local/share.
    #[arg(value_name = "STORE")]
    pub store: Option<PathBuf>,
    /// Receiver, a `bentpipe probe origin --uploads`: https://HOST/, or http:// and an address of this machine.
    #[arg(long, value_name = "URL")]
    pub to: String,
    /// File with the receiver's secret.
    #[arg(long, value_name = "FILE", required_unless_present = "dry_run")]
    pub token_file: Option<PathBuf>,
    /// Show what would be shared, and send nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Share without a question. Otherwise each kind of record needs your consent once.
    #[arg(long)]
    pub yes: bool,
}

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// Store of a probe, which may be running.
    #[arg(value_name = "STORE")]
    pub store: PathBuf,
    /// Write a profile of this name instead of records: delay and loss of the longest session, for the lab.
    #[arg(long, value_name = "NAME")]
    pub profile: Option<String>,
    /// File for the result instead of standard output.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        probe: Args,
    }

    #[test]
    fn the_unit_of_a_user_has_valid_arguments() {
        let unit = include_str!("../../../deploy/systemd/user/bentpipe-probe.service");
        let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart="));
        let arguments = command.and_then(|command| command.strip_prefix("/usr/bin/bentpipe "));
        let program = Program::try_parse_from(arguments.unwrap().split(' ')).unwrap();
        assert!(program.probe.command.is_none() && program.probe.run.quiet);
    }
}
