//! Captive portals: detected, never clicked.
//!
//! A page that always answers 204 tells an open access from a portal that answers in its place. A network may
//! also name its portal itself: by DHCP or router advertisement (RFC 8910), as the address of an API (RFC 8908).

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Maximum number of bytes of a response that are kept, such as an address from `Location`.
const MAX_TEXT: usize = 512;

/// Word of a network that has no portal (RFC 8910 section 2).
pub const UNRESTRICTED: &str = "urn:ietf:params:capport:unrestricted";

/// Longest time between two questions to an API. A question costs about 6 kB, with its handshake.
const API_EVERY: Duration = Duration::from_secs(600);

/// A check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalCheck {
    /// Address of the page.
    pub url: String,
    /// Finding.
    #[serde(flatten)]
    pub state: PortalState,
    /// Status code of the response.
    pub status: Option<u16>,
    /// Time from the start of the connection to the response, in microseconds.
    pub rtt_us: Option<u64>,
    /// The failure in OONI's manner.
    pub failure: Option<String>,
    /// Address of the network's API of RFC 8908, if it named one as RFC 8910 describes.
    pub api: Option<String>,
    /// The API's answer, if it was asked in this check.
    #[serde(default)]
    pub api_answer: Option<Api>,
    /// The failure of that question, in OONI's manner.
    #[serde(default)]
    pub api_failure: Option<String>,
}

/// Finding of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum PortalState {
    /// The page itself answered.
    Open,
    /// Somebody else answered in its place.
    Captive {
        /// Address to which the portal sends browsers.
        location: Option<String>,
    },
    /// Nothing answered, so nothing is known.
    Unknown,
}

impl PortalState {
    /// Judges a response to a request for a page that answers 204.
    pub fn of_response(status: u16, location: Option<&str>) -> Self {
        match status {
            204 => Self::Open,
            // A server in trouble is not a portal. 511 is the code that RFC 6585 gives to portals.
            500..=599 if status != 511 => Self::Unknown,
            _ => Self::Captive { location: location.map(clean) },
        }
    }
}

/// The answer of an API of RFC 8908.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Api {
    /// The client must still log in.
    pub captive: bool,
    /// Page for the login.
    pub user_portal_url: Option<String>,
    /// Page about the venue.
    pub venue_info_url: Option<String>,
    /// The user may extend the session.
    pub can_extend_session: Option<bool>,
    /// Seconds until the session ends.
    pub seconds_remaining: Option<u64>,
    /// Bytes until the session ends.
    pub bytes_remaining: Option<u64>,
}

impl Api {
    /// Type of its answers.
    pub const TYPE: &str = "application/captive+json";

    /// Parses an answer.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let mut api: Self = serde_json::from_slice(json)?;
        for url in [&mut api.user_portal_url, &mut api.venue_info_url].into_iter().flatten() {
            *url = clean(url);
        }
        Ok(api)
    }
}

/// The times at which an API is asked: at first, when the access changes, and every ten minutes.
#[derive(Debug, Default)]
pub struct ApiSchedule(Option<(String, std::mem::Discriminant<PortalState>, Duration)>);

impl ApiSchedule {
    /// Returns `true` if `api` is to be asked at `now`, and notes that it is. Not every address is an API:
    /// [`UNRESTRICTED`] says that there is none.
    pub fn is_due(&mut self, api: &str, state: &PortalState, now: Duration) -> bool {
        let state = std::mem::discriminant(state);
        let is_due = self.0.as_ref().is_none_or(|(last, before, at)| {
            last != api || *before != state || now.saturating_sub(*at) >= API_EVERY
        });
        if is_due {
            self.0 = Some((api.into(), state, now));
        }
        is_due && api != UNRESTRICTED
    }
}

/// The API that the network named, from a state file of systemd-networkd (`/run/systemd/netif/links/2`).
pub fn networkd_api(state: &str) -> Option<String> {
    let value = state.lines().find_map(|line| line.strip_prefix("CAPTIVE_PORTAL="))?.trim();
    (!value.is_empty()).then(|| clean(value))
}

fn clean(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_204_is_open() {
        assert_eq!(PortalState::of_response(204, None), PortalState::Open);
        let login = "http://portal.example/login";
        let captive = PortalState::Captive { location: Some(login.into()) };
        assert_eq!(PortalState::of_response(302, Some(login)), captive);
        assert_eq!(PortalState::of_response(200, None), PortalState::Captive { location: None });
        assert_eq!(PortalState::of_response(511, None), PortalState::Captive { location: None });
        assert_eq!(PortalState::of_response(503, None), PortalState::Unknown);
        let long =
            PortalState::of_response(302, Some(&format!("http://a/\u{1b}[2J{}", "x".repeat(9999))));
        let PortalState::Captive { location: Some(location) } = long else { panic!() };
        assert!(location.len() == MAX_TEXT && !location.contains('\u{1b}'));
    }

    #[test]
    fn the_api_of_rfc_8908() {
        // The example of section 5.
        let json = br#"{"captive": true, "user-portal-url": "https://example.org/portal.html"}"#;
        let api = Api::parse(json).unwrap();
        assert!(
            api.captive
                && api.user_portal_url.as_deref() == Some("https://example.org/portal.html")
        );
        assert!(
            Api::parse(br#"{"user-portal-url": "https://example.org"}"#).is_err(),
            "captive is required"
        );
        let long =
            format!(r#"{{"captive": false, "venue-info-url": "{}\u001b[2J"}}"#, "x".repeat(600));
        let venue = Api::parse(long.as_bytes()).unwrap().venue_info_url.unwrap();
        assert!(venue.len() == MAX_TEXT && !venue.contains('\u{1b}'));
    }

    #[test]
    fn an_api_is_asked_when_the_access_changes() {
        let (mut schedule, s) = (ApiSchedule::default(), Duration::from_secs);
        let captive = |location: &str| PortalState::Captive { location: Some(location.into()) };
        let (one, two) = ("https://one.example/", "https://two.example/");
        assert!(schedule.is_due(one, &captive("/login?1"), s(0)), "at first");
        assert!(!schedule.is_due(one, &captive("/login?2"), s(60)), "the same state");
        assert!(schedule.is_due(one, &PortalState::Open, s(120)), "logged in");
        assert!(!schedule.is_due(one, &PortalState::Open, s(719)));
        assert!(schedule.is_due(one, &PortalState::Open, s(720)), "after ten minutes");
        assert!(schedule.is_due(two, &PortalState::Open, s(780)), "another network");
        assert!(!schedule.is_due(UNRESTRICTED, &PortalState::Open, s(840)));
    }

    #[test]
    fn the_network_names_its_api() {
        let state =
            "ADMIN_STATE=configured\nCAPTIVE_PORTAL=https://wifi.example/api\nDNS=10.0.0.1\n";
        assert_eq!(networkd_api(state).as_deref(), Some("https://wifi.example/api"));
        assert_eq!(networkd_api("CAPTIVE_PORTAL=\n"), None);
        assert_eq!(networkd_api("DNS=10.0.0.1\n"), None);
    }
}
