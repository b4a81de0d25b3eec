//! The gateway's service, if systemd runs this machine.

use std::error::Error;
use std::path::Path;
use std::process::{Command, Stdio};

/// Folder of the configurations and keys that the units use.
pub const FOLDER: &str = "/etc/bentpipe";

/// Folder that exists if and only if systemd is the service manager (`sd_booted(3)`).
const SYSTEMD: &str = "/run/systemd/system";

/// A gateway's unit.
pub struct Service(&'static str);

impl Service {
    /// The service `unit` if it runs the configuration in `folder` on this machine.
    pub fn of(unit: &'static str, folder: &Path) -> Option<Self> {
        let is_packaged = folder == Path::new(FOLDER) && Path::new(SYSTEMD).is_dir();
        let service = Self(unit);
        (is_packaged && service.systemctl(&["cat"])).then_some(service)
    }

    /// Name of the unit.
    pub fn name(&self) -> &'static str {
        self.0
    }

    /// Returns whether the gateway runs, or tries to.
    pub fn runs(&self) -> bool {
        self.systemctl(&["is-active", "--quiet"])
    }

    /// Starts the gateway, now and at every boot.
    pub fn start(&self) -> Result<(), Box<dyn Error>> {
        if self.systemctl(&["enable", "--now"]) {
            eprintln!("{}: started, now and at every boot", self.0);
            return Ok(());
        }
        let unit = self.0;
        Err(format!("{unit} does not start: `journalctl -u {unit} -n 20` shows why").into())
    }

    /// Lets the gateway read its configuration again, which has a new aircraft.
    pub fn reload(&self, aircraft: &str) -> Result<(), Box<dyn Error>> {
        let unit = self.0;
        if self.systemctl(&["reload"]) {
            eprintln!("{unit}: knows {aircraft} now; other aircraft were not interrupted");
            return Ok(());
        }
        Err(format!("{unit} does not reload: `journalctl -u {unit} -n 20` shows why").into())
    }

    fn systemctl(&self, command: &[&str]) -> bool {
        let mut systemctl = Command::new("systemctl");
        systemctl.args(command).arg(self.0).stdin(Stdio::null()).stdout(Stdio::null());
        systemctl.stderr(Stdio::null()).status().is_ok_and(|status| status.success())
    }
}
