//! Verification of a class claim: whether the flow's address belongs to the claimed name.

use std::net::IpAddr;
use std::time::Duration;

use bentpipe_classify::Name;
use tokio::time::timeout;

use super::eyeballs::{Family, Resolve};

/// Time limit for the lookup, measured from the start of the dial. It limits the delay that a flow
/// accepts for its class.
const CLAIM_WAIT: Duration = Duration::from_millis(500);

/// Returns `true` if our resolver finds `address` for `name` within the limit. Without an answer,
/// the claim is not verified.
pub async fn holds(resolver: &impl Resolve, name: &Name, address: IpAddr) -> bool {
    let address = address.to_canonical();
    let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
    let asking = resolver.resolve(name.as_str().to_owned(), family);
    matches!(timeout(CLAIM_WAIT, asking).await, Ok(Ok(known)) if known.contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bentpipe_flow::ResetCode;
    use futures_util::future::BoxFuture;

    struct Table;

    impl Resolve for Table {
        fn resolve(
            &self,
            name: String,
            family: Family,
        ) -> BoxFuture<'_, Result<Vec<IpAddr>, ResetCode>> {
            Box::pin(async move {
                match (name.as_str(), family) {
                    ("gov.uk", Family::V4) => Ok(vec!["192.0.2.7".parse().unwrap()]),
                    ("gov.uk", Family::V6) => Ok(vec!["2001:db8::7".parse().unwrap()]),
                    ("slow.test", _) => std::future::pending().await,
                    _ => Err(ResetCode::NameNotFound),
                }
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_answer_in_time_is_proof() {
        let holds = async |name: &str, address: &str| {
            holds(&Table, &name.parse().unwrap(), address.parse().unwrap()).await
        };
        for address in ["192.0.2.7", "::ffff:192.0.2.7", "2001:db8::7"] {
            assert!(holds("gov.uk", address).await, "{address}");
        }
        assert!(!holds("gov.uk", "192.0.2.8").await);
        assert!(!holds("shop.test", "192.0.2.7").await);
        let began = tokio::time::Instant::now();
        assert!(!holds("slow.test", "192.0.2.7").await);
        assert_eq!(began.elapsed(), CLAIM_WAIT);
    }
}
