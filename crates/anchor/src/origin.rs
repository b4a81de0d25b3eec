//! Origin of a flow at a hub or at its egress.

use bentpipe_choice::Passenger;
use bentpipe_flow::{Claim, Class};
use bentpipe_transport::Incoming;

use crate::registry::Caller;

/// Origin of a carrier, and what its flow asks for.
pub struct Origin {
    /// The aircraft and its session.
    pub caller: Caller,
    /// `true` if another hub forwards the flow. It is not forwarded again, so that grounds that name
    /// each other as hub and egress do not pass a flow back and forth.
    pub is_forwarded: bool,
    /// Requested class.
    pub class: Class,
    /// Number of the passenger.
    pub passenger: u32,
    /// Class claim that is to be verified.
    pub claim: Option<Claim>,
}

impl Origin {
    /// Origin of `incoming`.
    pub fn of(incoming: &Incoming) -> Self {
        let Incoming { aircraft, session, is_forwarded, class, passenger, .. } = *incoming;
        let (caller, claim) = (Caller { aircraft, session }, incoming.claim.clone());
        Self { caller, is_forwarded, class, passenger, claim }
    }

    /// Origin of a stream that belongs to the gateway with this public key, and to no aircraft.
    pub fn own(key: [u8; 32]) -> Self {
        Self {
            caller: Caller { aircraft: key, session: 0 },
            is_forwarded: false,
            class: Class::Network,
            passenger: 0,
            claim: None,
        }
    }

    /// The passenger on the aircraft.
    pub fn who(&self) -> Passenger {
        (self.caller.aircraft, self.passenger)
    }
}
