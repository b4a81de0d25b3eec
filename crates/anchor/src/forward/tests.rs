use tokio::time::sleep;

use super::*;
use crate::fake_leg::FakeLeg;

#[tokio::test(start_paused = true)]
async fn reports_of_an_egress_that_is_down_end_with_the_egresses() {
    let legs = [1, 2].map(|_| Arc::new(FakeLeg::new(Reach::Down)));
    let weak = legs.each_ref().map(Arc::downgrade);
    let all =
        legs.map(|leg| OtherEgress::new(&[7; 32], watch::channel(Some(leg as Arc<dyn Leg>)).1));
    let egresses = Arc::new(Egresses::new(all.into(), true));
    Egresses::watch(&egresses);
    sleep(Duration::from_secs(1)).await;
    assert!(weak.iter().all(|leg| leg.upgrade().is_some()));
    drop(egresses);
    sleep(Duration::from_secs(1)).await;
    assert!(weak.iter().all(|leg| leg.upgrade().is_none()), "tasks would hold the legs");
}
