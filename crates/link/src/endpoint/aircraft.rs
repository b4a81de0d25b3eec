//! Aircraft of a hub, and the settings of their sessions.

use std::collections::BTreeMap;
use std::time::Duration;

use super::responder::AnswerParams;
use crate::Class;
use crate::crypto::InitPayload;
use crate::key::PublicKey;
use crate::lease::ModemRate;
use crate::memory::Attachments;
use crate::settings::Settings;

/// One aircraft.
#[derive(Debug, Clone)]
pub struct Aircraft {
    /// Its key.
    pub key: PublicKey,
    /// Bounds and timers of its session; the rate is for sending to it.
    pub settings: Settings,
    /// The most favoured class that its flows may have; flows that ask for more get this one.
    pub highest_class: Class,
}

pub(super) struct Entry {
    /// Settings of the present session, or of the next one.
    pub(super) settings: Settings,
    /// Settings of the next session, if they differ.
    pub(super) next: Option<Box<Settings>>,
    pub(super) highest_class: Class,
    /// Measurements of its paths by previous sessions.
    pub(super) remembered: Attachments,
    /// Last report of the modem towards the aircraft, and its time.
    pub(super) modem: Option<(ModemRate, Duration)>,
}

impl Entry {
    pub(super) fn new(settings: Settings, highest_class: Class) -> Self {
        let (next, remembered, modem) = Default::default();
        Self { settings, next, highest_class, remembered, modem }
    }

    /// Settings of the next session.
    pub(super) fn newest(&self) -> &Settings {
        self.next.as_deref().unwrap_or(&self.settings)
    }
}

/// Parameters in the answer to an aircraft, for the session that it resumes or for its next one.
pub(super) fn params_of(
    aircraft: &BTreeMap<PublicKey, Entry>,
    key: &PublicKey,
    payload: &InitPayload,
) -> Option<AnswerParams> {
    let entry = aircraft.get(key)?;
    let settings = if payload.resumes == 0 { entry.newest() } else { &entry.settings };
    Some(AnswerParams {
        rate_bps: settings.announced_rate_bps(),
        reserve_bytes: settings.flow_reserve.bytes() as u32,
        max_flows: settings.max_flows,
        max_paths: settings.max_paths(),
    })
}
