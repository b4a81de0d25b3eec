//! Flows, with their owners, that a gateway leaves for its next process.

use std::io;
use std::sync::Arc;

use bentpipe_flow::Target;
use bentpipe_link::Class;
use bentpipe_relay::flows::Flows;
use bentpipe_relay::handover::{self, Store};
use bentpipe_transport::Acceptor;
use bytes::{Buf, BufMut, TryGetError};

/// Owner of a flow.
#[derive(Debug, PartialEq, Eq)]
pub struct Owner {
    pub aircraft: [u8; 32],
    pub passenger: u32,
    pub class: Class,
    pub target: Target,
}

impl Owner {
    /// Encodes the owner for the next process.
    pub fn encode(&self) -> Vec<u8> {
        let mut encoded = self.aircraft.to_vec();
        encoded.put_u32(self.passenger);
        encoded.put_u8(self.class as u8);
        // A target that was dialled has an encoding.
        let _ = self.target.encode(&mut encoded);
        encoded
    }

    /// Decodes the owner that the previous process has written.
    pub fn decode(mut bytes: &[u8]) -> io::Result<Self> {
        let short = |error: TryGetError| io::Error::other(error);
        let mut aircraft = [0; 32];
        bytes.try_copy_to_slice(&mut aircraft).map_err(short)?;
        let passenger = bytes.try_get_u32().map_err(short)?;
        let class = Class::from_u8(bytes.try_get_u8().map_err(short)?);
        let class = class.ok_or_else(|| io::Error::other("no such class"))?;
        let (target, _) = Target::decode(bytes).map_err(io::Error::other)?;
        Ok(Self { aircraft, passenger, class, target })
    }
}

/// Leaves all anchored flows with the service manager by `store`. All others are reset.
pub async fn leave_flows(acceptors: &[Arc<dyn Acceptor>], flows: &Flows, store: &Store) {
    acceptors.iter().for_each(|from| from.begin_handover());
    let flows = flows.hand_over().await;
    if let Some(gateway) = acceptors.iter().find_map(|from| from.hand_over()) {
        handover::leave(gateway, flows, store);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_flow_is_read_as_it_was_written() {
        let target: Target = "origin.test:443".parse().unwrap();
        let owner = Owner { aircraft: [7; 32], passenger: 9, class: Class::BestEffort, target };
        let encoded = owner.encode();
        for short in 0..encoded.len() {
            assert!(Owner::decode(&encoded[..short]).is_err(), "{short} bytes");
        }
        assert_eq!(Owner::decode(&encoded).unwrap(), owner);
    }
}
