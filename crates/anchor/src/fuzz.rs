//! Entry point of a fuzz target.

use bentpipe_flow::Target;

use crate::end::{End, Identity};
use crate::incoming::Occasion;
use crate::ticket::TicketKey;

/// Gives `bytes` to both ends of a flow as the records of a hostile peer, in pieces of different sizes.
pub fn records(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let target: Target = "server.test:80".parse().unwrap_or_else(|_| unreachable!("a target"));
    let (mut air, mut identity) = (End::default(), Identity::new([1; 16], target));
    air.outgoing.write(bytes);
    let ticket = TicketKey::new([2; 32], [3; 8]).issue(&[4; 32], &[1; 16], 1, Default::default());
    let mut egress = End::default();
    egress.outgoing.write(bytes);
    let (mut at_air, _) = identity.begin(&air);
    let Ok(mut at_egress) = egress.accept(0, ticket) else { return };
    let mut is_broken = [false; 2];
    for piece in bytes.chunks(usize::from(*size) + 1) {
        let ends = [(&mut air, &mut at_air), (&mut egress, &mut at_egress)];
        for ((end, attachment), is_broken) in ends.into_iter().zip(&mut is_broken) {
            if *is_broken {
                continue;
            }
            let mut piece = [attachment.left(), piece].concat();
            match attachment.decode(end, &mut piece) {
                Ok(kept) => assert!(kept <= piece.len()),
                Err(_) => *is_broken = true,
            }
            end.confirm(Occasion::Dry, 0);
            let count = end.outgoing.output().len();
            end.outgoing.written(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_records_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            records(&bytes);
        }
    }
}
