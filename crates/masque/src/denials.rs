//! Answers of a proxy that refuse this client instead of a destination.

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Time for which a refusal of the authorization counts. Then flows try again.
const AUTHORIZATION_PAUSE: Duration = Duration::from_secs(30);

/// Refusals of one proxy, or none for a gateway, which refuses a key with the whole connection.
#[derive(Default)]
pub(crate) struct Denials {
    /// Name of the proxy.
    proxy: Option<String>,
    state: Mutex<Denied>,
}

#[derive(Default)]
struct Denied {
    /// Time of the last 401 or 407, if no request was accepted since.
    authorization: Option<Instant>,
    /// `true` from the first 403 on. A destination may be the reason, so it is reported once.
    some_destination: bool,
}

impl Denials {
    pub fn of_proxy(name: String) -> Self {
        Self { proxy: Some(name), ..Self::default() }
    }

    /// Notes the status of a final response, and logs a refusal of this client.
    pub fn note(&self, status: StatusCode) {
        let Some(proxy) = &self.proxy else { return };
        let mut state = self.state.lock();
        match status.as_u16() {
            200..300 => state.authorization = None,
            code @ (401 | 407) => {
                let is_new = !state.authorization.is_some_and(is_recent);
                state.authorization = Some(Instant::now());
                if is_new {
                    tracing::warn!(
                        proxy,
                        code,
                        "the proxy refuses the authorization: check authorization-file under [[egress]]"
                    );
                }
            }
            code @ 403 if !std::mem::replace(&mut state.some_destination, true) => tracing::warn!(
                proxy,
                code,
                "the proxy refuses a destination, or this hub: its own log says which; further ones \
                 are not reported"
            ),
            _ => {}
        }
    }

    /// Returns `true` if the proxy has refused the authorization a short time ago, and accepted nothing
    /// since.
    pub fn is_unauthorized(&self) -> bool {
        self.state.lock().authorization.is_some_and(is_recent)
    }
}

fn is_recent(at: Instant) -> bool {
    at.elapsed() < AUTHORIZATION_PAUSE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_accepted_request_ends_the_refusal_of_the_authorization() {
        let denials = Denials::of_proxy("proxy.example".to_owned());
        let after = |status| {
            denials.note(StatusCode::from_u16(status).unwrap());
            denials.is_unauthorized()
        };
        assert_eq!(
            [403, 407, 403, 502, 200, 401].map(after),
            [false, true, true, true, false, true]
        );
        let gateway = Denials::default();
        gateway.note(StatusCode::PROXY_AUTHENTICATION_REQUIRED);
        assert!(!gateway.is_unauthorized());
    }
}
