//! Class limits, which may change during sessions, and class counters.

use std::time::Duration;

use bentpipe_flow::Traffic;
use bentpipe_schedule::{ClassSettings, PerClass, SnapshotLimits};

use super::{AirCore, HubCore};
use crate::key::PublicKey;
use crate::settings::{SettingsError, check_classes};

impl AirCore {
    /// Sets the limits of each class for what this end sends, also in later sessions.
    pub fn set_classes(
        &mut self,
        classes: PerClass<ClassSettings>,
        now: Duration,
    ) -> Result<(), SettingsError> {
        check_classes(&classes, self.config.settings.mtu_bytes)?;
        self.config.settings.classes = classes;
        match &mut self.session {
            Some((_, session)) => session.set_classes(classes, now),
            None => Ok(()),
        }
    }
}

impl HubCore {
    /// Sets the limits of each class for what is sent to an aircraft, also in later sessions.
    /// Ignores an unknown aircraft.
    pub fn set_classes(
        &mut self,
        aircraft: &PublicKey,
        classes: PerClass<ClassSettings>,
        now: Duration,
    ) -> Result<(), SettingsError> {
        let Some(entry) = self.aircraft.get_mut(aircraft) else { return Ok(()) };
        check_classes(&classes, entry.settings.mtu_bytes)?;
        entry.settings.classes = classes;
        match self.session_of(aircraft) {
            Some(session) => session.set_classes(classes, now),
            None => Ok(()),
        }
    }
    /// Traffic of an aircraft's session; `None` if it has none.
    pub fn traffic(
        &mut self,
        aircraft: &PublicKey,
        max: SnapshotLimits,
        now: Duration,
    ) -> Option<Traffic> {
        Some(self.session_of(aircraft)?.traffic(max, now))
    }
}
