//! The `bentpipe` command: the gateways, and what their operators need.
//!
//! The lab is in the program `bentpipe-lab`, which this one starts for `lab`, `demo` and `report`.

#![forbid(unsafe_code)]

mod bridge;
mod check;
mod classify;
mod commands;
mod confine;
mod explain;
mod gateways;
mod geofeed;
mod init;
mod keys;
mod preload;
mod reload;
mod sheet;
mod status;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use bentpipe_cli::pages::{self, Shell};
use bentpipe_cli::sibling::{LAB, become_program};
use bentpipe_cli::{VERSION, log, out};
use clap::{CommandFactory, Parser, Subcommand};

/// The allocator of static programs, because musl's own is slow (docs/sizing.md).
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The open gateway pair for Internet access over geostationary satellites and air-to-ground radio.
#[derive(Parser)]
#[command(version = VERSION, propagate_version = true, max_term_width = 80)]
struct Cli {
    /// Format of the gateways' log, and of errors on stderr.
    #[arg(
        long,
        value_name = "FORMAT",
        global = true,
        value_enum,
        default_value_t,
        env = log::FORMAT_VARIABLE,
        hide_env_values = true
    )]
    log_format: log::Format,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the air gateway: accepts clients' connections and carries them over the radio link.
    ///
    /// Runs until SIGINT or SIGTERM and logs to stderr; RUST_LOG=debug logs more. `bentpipe check`
    /// explains its configuration, docs/settings.md lists all settings.
    Air {
        /// The configuration, usually air.toml.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
        /// The transport to use instead of the configured one. The ground serves each transport at
        /// its own address, so `peer` in the configuration must match.
        #[arg(long, value_name = "NAME")]
        transport: Option<gateways::TransportName>,
        /// Instead of running, remove the interception rules that a killed gateway left; those of
        /// `fail-closed = true` stay.
        #[arg(long, conflicts_with = "transport")]
        remove_rules: bool,
    },
    /// Run the ground gateway: serves known aircraft and dials destinations for them.
    ///
    /// Runs until SIGINT or SIGTERM and logs to stderr; RUST_LOG=debug logs more. `bentpipe check`
    /// explains its configuration, docs/settings.md lists all settings.
    Ground {
        /// The configuration, usually ground.toml.
        #[arg(long, value_name = "FILE")]
        config: PathBuf,
    },
    /// Make a key pair: the private key goes to a file, the public key is printed.
    ///
    /// Each gateway needs its own pair. The private key stays on the machine where it is made; the
    /// public key goes into the configuration of the other gateway.
    Keys {
        /// Make a token for a standard MASQUE client of this name instead: the token goes to the
        /// file, the entry for the ground's configuration is printed.
        #[arg(long, value_name = "NAME")]
        client: Option<String>,
        /// File for the private key or the token; it must not exist yet.
        #[arg(long, value_name = "FILE", required_unless_present = "show")]
        out: Option<PathBuf>,
        /// Print the public key of the private key in this file instead.
        #[arg(long, value_name = "FILE", conflicts_with_all = ["client", "out"])]
        show: Option<PathBuf>,
    },
    /// Set up a gateway: write its configuration and key, and start its service.
    ///
    /// On the ground, `bentpipe init ground --name boat-1` prints a join line. On the aircraft,
    /// `bentpipe init air 'LINE' --interface br-lan` uses it. docs/install.md shows how to do the
    /// same by hand.
    #[command(subcommand)]
    Init(init::Init),
    /// Explain a gateway's configuration, or report its errors.
    ///
    /// With the files of both gateways of a pair, also check them against each other.
    Check {
        /// The configuration of either gateway.
        #[arg(value_name = "FILE")]
        config: PathBuf,
        /// The configuration of the other gateway of the pair.
        #[arg(value_name = "FILE")]
        other: Option<PathBuf>,
    },
    /// Print the JSON Schema of a gateway's configuration, for editors.
    ///
    /// An editor completes and checks a configuration whose first line names the file with the
    /// schema: `#:schema air.schema.json`. docs/settings.md says more.
    Schema {
        /// The gateway whose configuration the schema describes.
        gateway: check::Gateway,
    },
    /// Show the class of a flow: which rule applies, and why the others do not.
    Classify(classify::Classify),
    /// Show a gateway's current traffic: classes, passengers and flows.
    ///
    /// The gateway writes it to the file configured under [status]; docs/status.md describes the
    /// file's fields. Rates are averages between the last two files.
    Status(status::Status),
    /// Let a running gateway read its configuration again, and show what waits.
    ///
    /// Other aircraft's flows do not notice. If the file has a mistake, nothing changes and the exit
    /// status is 1. SIGHUP does the same, and leaves the outcome in the log. docs/operations.md says
    /// what a reload changes.
    Reload(commands::Gateway),
    /// Say by which egress a hub reaches a destination, and why.
    ///
    /// A hub with several egresses learns from the times of their connections which one is best for a site.
    /// Passengers keep theirs at a site for 15 minutes after its last flow. docs/several-hubs.md
    /// says more.
    Explain(explain::Explain),
    /// Print the places of the ground's source addresses as a geofeed (RFC 8805).
    ///
    /// Publish the output over HTTPS, and name it in the registry entry of your networks (RFC 9632).
    /// Those who look up addresses then find the country that you mean.
    Geofeed(geofeed::Geofeed),
    /// Fetch the portal's content into a running air gateway's cache, and show the result.
    ///
    /// The gateway goes through the manifest of its [preload] once. A timer of the service manager
    /// runs this command at night; docs/cabin-services.md says more. Ending the command stops the
    /// run.
    Preload(preload::Preload),
    /// Measure the Internet access of a flight: latency, loss, paths, DNS caches, captive portals.
    ///
    /// Works on any access, without Bentpipe, root or configuration. Shows a live table and stores every
    /// record. Only `upload` sends records, after it has shown them. docs/probe.md describes the records.
    #[cfg(feature = "probe")]
    Probe(Box<bentpipe_probe_host::Args>),
    /// Print the completions of a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the man pages of all commands to a folder.
    Man {
        /// The folder; it must exist.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// See Bentpipe work: an emulated in-flight link, with and without the gateways, then a proxy
    /// to browse through. Needs the program bentpipe-lab.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Demo(OfTheLab),
    /// Compare the results in a folder with the published studies. Needs the program bentpipe-lab.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Report(OfTheLab),
    /// Experiments on emulated and simulated links. Needs the program bentpipe-lab.
    #[command(disable_help_flag = true, disable_version_flag = true)]
    Lab(OfTheLab),
}

/// Arguments that are passed on to `bentpipe-lab`.
#[derive(clap::Args)]
struct OfTheLab {
    /// Arguments of the command; --help lists them.
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

impl OfTheLab {
    /// Starts `bentpipe-lab` in place of this process, with `command` before the arguments.
    fn run(self, command: Option<&str>) -> Result<(), Box<dyn std::error::Error>> {
        let command = command.map(OsString::from).into_iter();
        let arguments: Vec<OsString> = command.chain(self.arguments).collect();
        Err(become_program(LAB, &arguments))
    }
}

fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|error| end_with_usage(&error));
    log::set_format(cli.log_format);
    let result = match cli.command {
        Command::Air { config, remove_rules: true, .. } => gateways::remove_rules(&config),
        Command::Air { config, transport, .. } => gateways::run_air(&config, transport),
        Command::Ground { config } => gateways::run_ground(&config),
        Command::Keys { show: Some(file), .. } => keys::show(&file),
        Command::Keys { client: None, out: Some(out), .. } => keys::make(&out),
        Command::Keys { client: Some(name), out: Some(out), .. } => keys::make_token(&name, &out),
        // The arguments' rules exclude it.
        Command::Keys { out: None, .. } => Ok(()),
        Command::Init(init) => init::run(&init),
        Command::Check { config, other: None } => check::run(&config),
        Command::Check { config, other: Some(other) } => check::run_pair(&config, &other),
        Command::Schema { gateway } => {
            check::print_schema(gateway);
            Ok(())
        }
        Command::Classify(classify) => classify::run(&classify),
        Command::Status(status) => status::run(&status),
        Command::Reload(gateway) => reload::run(&gateway),
        Command::Explain(explain) => explain::run(&explain),
        Command::Geofeed(args) => geofeed::run(&args),
        Command::Preload(preload) => preload::run(&preload),
        #[cfg(feature = "probe")]
        Command::Probe(args) => bentpipe_probe_host::run(&args).map_err(Into::into),
        Command::Completions { shell } => pages::complete(&mut Cli::command(), shell),
        Command::Man { folder } => pages::man(Cli::command(), &folder),
        Command::Demo(rest) => rest.run(Some("demo")),
        Command::Report(rest) => rest.run(Some("report")),
        Command::Lab(rest) => rest.run(None),
    };
    match result.and_then(|()| Ok(out::result()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::failure("bentpipe", &log::causes(&*error));
            ExitCode::FAILURE
        }
    }
}

/// Prints an error of the command line, or the help that it asks for, and ends the process.
fn end_with_usage(error: &clap::Error) -> ! {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if error.use_stderr() && log::Format::of_faulty(&arguments) == log::Format::Json {
        log::set_format(log::Format::Json);
        log::failure("bentpipe", &error.render());
        std::process::exit(error.exit_code());
    }
    error.exit()
}
