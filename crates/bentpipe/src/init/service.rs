//! The gateway's service, if systemd or procd (OpenWrt) starts services on this machine.

use std::error::Error;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Folder of the configurations and keys that the services use.
pub const FOLDER: &str = "/etc/bentpipe";

/// Unit of the air gateway.
pub const AIR_UNIT: &str = "bentpipe-air.service";
/// Unit of the ground gateway.
pub const GROUND_UNIT: &str = "bentpipe-ground.service";

/// Folder that exists if and only if systemd is the service manager (`sd_booted(3)`).
const SYSTEMD: &str = "/run/systemd/system";

/// Script of the air gateway's service under procd. The package for OpenWrt installs it.
const PROCD_SCRIPT: &str = "/etc/init.d/bentpipe";

/// A gateway's service.
pub enum Service {
    /// Unit of systemd.
    Systemd(&'static str),
    /// The air gateway under procd.
    Procd,
}

impl Service {
    /// The service that runs the configuration of `unit` in `folder` on this machine.
    pub fn of(unit: &'static str, folder: &Path) -> Option<Self> {
        if folder != Path::new(FOLDER) {
            return None;
        }
        if Path::new(SYSTEMD).is_dir() {
            let service = Self::Systemd(unit);
            return service.systemctl(&["cat"]).then_some(service);
        }
        let is_there = unit == AIR_UNIT && Path::new(PROCD_SCRIPT).exists();
        is_there.then_some(Self::Procd)
    }

    /// Name of the service.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Systemd(unit) => unit,
            Self::Procd => PROCD_SCRIPT,
        }
    }

    /// Returns whether the gateway runs, or tries to.
    pub fn runs(&self) -> bool {
        match self {
            Self::Systemd(_) => self.systemctl(&["is-active", "--quiet"]),
            Self::Procd => succeeds(PROCD_SCRIPT, ["running"]),
        }
    }

    /// Starts the gateway, now and at every boot.
    pub fn start(&self) -> Result<(), Box<dyn Error>> {
        let starts = match self {
            Self::Systemd(_) => self.systemctl(&["enable", "--now"]),
            Self::Procd => succeeds(PROCD_SCRIPT, ["enable"]) && succeeds(PROCD_SCRIPT, ["start"]),
        };
        let name = self.name();
        if starts {
            eprintln!("{name}: started, now and at every boot");
            return Ok(());
        }
        Err(format!("{name} does not start: `{}` shows why", self.log()).into())
    }

    /// Lets the gateway read its configuration again, which has a new aircraft.
    pub fn reload(&self, aircraft: &str) -> Result<(), Box<dyn Error>> {
        let reloads = match self {
            Self::Systemd(_) => self.systemctl(&["reload"]),
            Self::Procd => succeeds(PROCD_SCRIPT, ["reload"]),
        };
        let name = self.name();
        if reloads {
            eprintln!("{name}: knows {aircraft} now; other aircraft were not interrupted");
            return Ok(());
        }
        Err(format!("{name} does not reload: `{}` shows why", self.log()).into())
    }

    /// Command that shows the log.
    fn log(&self) -> String {
        match self {
            Self::Systemd(unit) => format!("journalctl -u {unit} -n 20"),
            Self::Procd => "logread -e bentpipe".to_owned(),
        }
    }

    fn systemctl(&self, command: &[&str]) -> bool {
        succeeds("systemctl", command.iter().copied().chain([self.name()]))
    }
}

fn succeeds<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
