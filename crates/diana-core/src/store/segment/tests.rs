//! A segment is a map that stays in hash order.

use super::{Segment, home, order};
use proptest::prelude::*;
use std::collections::BTreeMap;

impl<S: Default> Segment<S> {
    /// Panics if an invariant of the module's header is violated.
    fn assert_in_order(&self) {
        let mut last = 0;
        let mut count = 0;
        for (index, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.hash != 0) {
            assert!(order(slot.hash) >= last, "out of order at {index}");
            let home = home(slot.hash, self.homes);
            assert!(home <= index, "left of its home");
            assert!(self.slots[home..index].iter().all(|s| s.hash != 0), "an empty slot before {index}");
            last = order(slot.hash);
            count += 1;
        }
        assert_eq!(count, self.len);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Remove(u64),
    Retain(u64),
    Grow,
    Split(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few different hashes, many of them close together and some equal in the half that orders them.
    let hash = (0u64..4, 0u64..64, 0u64..4)
        .prop_map(|(top, middle, bottom)| (top << 40) | (middle << 26) | bottom)
        .prop_map(|hash| hash.max(1));
    let step = prop_oneof![
        4 => hash.clone().prop_map(Step::Insert),
        2 => hash.prop_map(Step::Remove),
        1 => (2u64..5).prop_map(Step::Retain),
        2 => Just(Step::Grow),
        1 => (40u32..42).prop_map(Step::Split),
    ];
    proptest::collection::vec(step, 1..300)
}

proptest! {
    #[test]
    fn behaves_as_a_map_and_stays_in_order(steps in steps()) {
        let mut segment = Segment::<u64>::empty().resized(8);
        let mut model = BTreeMap::new();
        for (number, step) in steps.into_iter().enumerate() {
            let value = number as u64;
            match step {
                Step::Insert(hash) if !model.contains_key(&hash) => {
                    if segment.insert(hash, value).is_ok() {
                        model.insert(hash, value);
                    }
                }
                Step::Insert(_) => {}
                Step::Remove(hash) => prop_assert_eq!(segment.remove(hash), model.remove(&hash)),
                Step::Retain(divisor) => {
                    segment.retain(|value| !value.is_multiple_of(divisor));
                    model.retain(|_, value| !value.is_multiple_of(divisor));
                }
                Step::Grow => {
                    let homes = segment.next_homes().unwrap_or(segment.homes);
                    segment = std::mem::replace(&mut segment, Segment::empty()).resized(homes);
                }
                Step::Split(bit) => {
                    let (mut zeros, mut ones) = std::mem::replace(&mut segment, Segment::empty()).split(1 << bit);
                    zeros.assert_in_order();
                    ones.assert_in_order();
                    prop_assert!(zeros.iter_mut().all(|(hash, _)| hash & (1 << bit) == 0));
                    prop_assert_eq!(zeros.iter_mut().chain(ones.iter_mut()).count(), model.len());
                    model.retain(|hash, _| hash & (1 << bit) != 0);
                    segment = ones;
                }
            }
            segment.assert_in_order();
            for (&hash, value) in &model {
                prop_assert_eq!(segment.get(hash), Some(value));
            }
        }
        prop_assert_eq!(segment.iter_mut().count(), model.len());
    }
}

#[test]
fn an_empty_segment_has_no_memory_and_is_full() {
    let mut segment = Segment::<u64>::empty();
    assert_eq!(segment.bytes(), 0);
    assert!(segment.get(7).is_none());
    assert!(segment.insert(7, 1).is_err());
}
