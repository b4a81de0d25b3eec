//! Weighted max-min shares: no share exceeds its request, and what one leaves goes to the others by
//! weight (Bertsekas and Gallager, Data Networks, section 6.5.2).

use bentpipe_units::BitRate;

/// Request for a share.
#[derive(Debug, Clone, Copy)]
pub struct Want {
    /// Relative weight; 0 counts as 1.
    pub weight: u32,
    /// Rate assigned before the rest is divided.
    pub floor: BitRate,
    /// Rate that could be used, with the floor; less than the floor counts as the floor.
    pub max: BitRate,
}

/// Divides `capacity`. The shares are in the order of `wants`, sum to no more than `capacity`, and
/// each lies between its floor and its maximum. If the floors alone exceed the capacity, all are
/// cut in proportion.
pub fn divide(capacity: BitRate, wants: &[Want]) -> Vec<BitRate> {
    divide_beside(0, capacity, wants)
}

/// Divides `capacity` next to others that want only their floors, `others` bit/s in total.
pub fn divide_beside(others: u128, capacity: BitRate, wants: &[Want]) -> Vec<BitRate> {
    let floors = wants.iter().fold(others, |sum, want| sum + u128::from(want.floor.bps()));
    let capacity = u128::from(capacity.bps());
    if floors > capacity {
        let cut = |want: &Want| u128::from(want.floor.bps()) * capacity / floors;
        return wants.iter().map(|want| BitRate::from_bps(cut(want) as u64)).collect();
    }
    let mut shares: Vec<u64> = wants.iter().map(|want| want.floor.bps()).collect();
    // In the order in which requests are met if all shares rise together by weight.
    let room = |index: usize| wants[index].max.bps().saturating_sub(wants[index].floor.bps());
    let weight = |index: usize| u128::from(wants[index].weight.max(1));
    let mut order: Vec<usize> = (0..wants.len()).collect();
    order.sort_by(|&a, &b| {
        let (a_soon, b_soon) = (u128::from(room(a)) * weight(b), u128::from(room(b)) * weight(a));
        a_soon.cmp(&b_soon).then(a.cmp(&b))
    });
    let mut left = capacity - floors;
    let mut weights: u128 = order.iter().map(|&index| weight(index)).sum();
    for index in order {
        let fair = left * weight(index) / weights;
        let more = fair.min(u128::from(room(index)));
        shares[index] += more as u64; // no more than `room`, a u64
        left -= more;
        weights -= weight(index);
    }
    shares.into_iter().map(BitRate::from_bps).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn want(weight: u32, floor: u64, max: u64) -> Want {
        Want { weight, floor: BitRate::from_bps(floor), max: BitRate::from_bps(max) }
    }

    fn shares(capacity: u64, wants: &[Want]) -> Vec<u64> {
        divide(BitRate::from_bps(capacity), wants).iter().map(|share| share.bps()).collect()
    }

    #[test]
    fn shares_follow_weights_and_unused_rate_goes_to_the_others() {
        let all = 1 << 40;
        assert_eq!(shares(900, &[want(1, 0, all), want(2, 0, all)]), [300, 600]);
        assert_eq!(shares(900, &[want(1, 0, all), want(2, 0, 100)]), [800, 100]);
        assert_eq!(shares(900, &[want(1, 60, 0), want(2, 0, 100)]), [60, 100]);
        assert_eq!(shares(900, &[want(1, 100, all), want(1, 0, all)]), [500, 400]);
        assert_eq!(shares(90, &[want(1, 100, all), want(1, 200, all)]), [30, 60]);
        assert_eq!(shares(90, &[]), Vec::<u64>::new());
    }

    proptest! {
        #[test]
        fn whoever_wants_its_floor_alone_may_be_left_out(
            capacity in 0u64..1 << 22,
            wants in prop::collection::vec((0u32..9, 0u64..1 << 20, any::<u64>()), 0..9),
            idle in prop::collection::vec((0u32..9, 0u64..1 << 20), 0..9),
        ) {
            let wants: Vec<Want> = wants.into_iter().map(|(w, f, m)| want(w, f, m)).collect();
            let idle: Vec<Want> = idle.into_iter().map(|(w, f)| want(w, f, 0)).collect();
            let capacity = BitRate::from_bps(capacity);
            let all = [&wants[..], &idle[..]].concat();
            let others = idle.iter().map(|want| u128::from(want.floor.bps())).sum();
            let beside = divide_beside(others, capacity, &wants);
            prop_assert_eq!(&divide(capacity, &all)[..wants.len()], &beside[..]);
        }

        #[test]
        fn the_shares_fit_and_none_could_have_more_but_from_one_with_less(
            capacity in 0u64..1 << 40,
            wants in prop::collection::vec((0u32..9, 0u64..1 << 20, any::<u64>()), 0..20),
        ) {
            let wants: Vec<Want> = wants.into_iter().map(|(w, f, m)| want(w, f, m)).collect();
            let shares = shares(capacity, &wants);
            let sum: u128 = shares.iter().map(|&share| u128::from(share)).sum();
            prop_assert!(sum <= u128::from(capacity));
            let floors: u64 = wants.iter().map(|want| want.floor.bps()).sum();
            if floors > capacity {
                return Ok(());
            }
            let unmet = |i: usize| shares[i] < wants[i].max.bps();
            if (0..wants.len()).any(unmet) {
                prop_assert!(sum + wants.len() as u128 > u128::from(capacity), "something is left");
            }
            for i in 0..wants.len() {
                prop_assert!(shares[i] >= wants[i].floor.bps());
                prop_assert!(shares[i] <= wants[i].max.bps().max(wants[i].floor.bps()));
                for j in (0..wants.len()).filter(|_| unmet(i)) {
                    let level = |i: usize| (shares[i] - wants[i].floor.bps()) as f64
                        / f64::from(wants[i].weight.max(1));
                    let slack = wants.len() as f64 + level(i) * 1e-9;
                    prop_assert!(level(j) <= level(i) + slack, "{j} got more than {i}");
                }
            }
        }
    }
}
