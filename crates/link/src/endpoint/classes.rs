//! Class limits, which may change while sessions go on, and class counters.

use std::time::Duration;

use bentpipe_schedule::{ClassSettings, Most, PerClass};

use super::{AirCore, HubCore};
use crate::flow::Traffic;
use crate::key::PublicKey;
use crate::settings::{SettingsError, check_classes};

impl AirCore {
    /// From `now` on each class gets this of what this end sends, in the sessions to come too.
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
    /// From `now` on each class gets this of what goes to an aircraft, in the sessions to come too.
    /// Of one that is not known nothing is done.
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
    /// Traffic of an aircraft's session; `None` while it has none.
    pub fn traffic(&mut self, aircraft: &PublicKey, most: Most, now: Duration) -> Option<Traffic> {
        Some(self.session_of(aircraft)?.traffic(most, now))
    }
}
