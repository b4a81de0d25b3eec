//! Captive portals: detected, never clicked.
//!
//! A page that always answers 204 tells an open access from a portal that answers in its place. A network may
//! also name its portal itself: by DHCP or router advertisement (RFC 8910), as the address of an API (RFC 8908).

use serde::{Deserialize, Serialize};

/// Most bytes of a response that are kept, such as an address from `Location`.
const MAX_TEXT: usize = 512;

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
    /// Parses `application/captive+json`.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(json)
    }
}

/// The API that the network named, from a state file of systemd-networkd (`/run/systemd/netif/links/2`).
/// "urn:ietf:params:capport:unrestricted" says that there is no portal (RFC 8910 section 2).
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
