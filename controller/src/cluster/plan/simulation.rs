//! The plan in a closed loop with the model, over random scripts of faults and edits. After every tick the invariants hold;
//! when the faults stop, the cluster converges and stays.

use proptest::prelude::*;

use super::model::{Event, Line, Trouble, WITH_LEARNERS, WITHOUT_LEARNERS, World};
use crate::cluster::step::{Outlook, Reason};

/// For so long nothing is written once the cluster is what the spec asks for.
const QUIET_ROUNDS: usize = 10;

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => any::<u8>().prop_map(Event::DeletePod),
        2 => any::<u8>().prop_map(Event::DeleteClaim),
        2 => any::<u8>().prop_map(Event::Wipe),
        1 => any::<u8>().prop_map(Event::LoseFounder),
        1 => any::<u8>().prop_map(Event::Corrupt),
        1 => Just(Event::Fill),
        2 => any::<u8>().prop_map(Event::Crash),
        2 => any::<u8>().prop_map(Event::Freeze),
        3 => Just(Event::Thaw),
        2 => any::<u8>().prop_map(Event::Resize),
        2 => any::<u8>().prop_map(Event::SetVersion),
        1 => any::<u8>().prop_map(Event::SetQuota),
        1 => Just(Event::Stale),
        2 => Just(Event::Fresh),
        4 => any::<u8>().prop_map(Event::CrashAfter),
        2 => any::<u8>().prop_map(Event::LoseReply),
        2 => any::<u8>().prop_map(Event::Conflict),
        8 => Just(Event::Quiet),
    ];
    prop::collection::vec(event, 0..60)
}

fn run(size: i32, line: Line, script: &[Event]) -> Result<(), TestCaseError> {
    let mut world = World::new(size, line);
    let mut stale = false;
    for event in script {
        match event {
            Event::Stale => stale = true,
            Event::Fresh => stale = false,
            _ => {}
        }
        let trouble = world.happen(*event);
        if !stale {
            world.look();
        }
        world.pass(trouble);
        world.live();
        prop_assert!(
            world.broken.is_none(),
            "{}",
            world.broken.unwrap_or_default()
        );
    }
    world.happen(Event::Thaw);
    let mut outlook = None;
    for _ in 0..400 {
        world.look();
        outlook = Some(world.pass(Trouble::None).outlook);
        world.live();
        prop_assert!(
            world.broken.is_none(),
            "{}",
            world.broken.unwrap_or_default()
        );
        if outlook == Some(Outlook::Settled) {
            break;
        }
    }
    let founder_lost = matches!(
        outlook,
        Some(Outlook::Stalled {
            reason: Reason::FounderLost,
            ..
        })
    );
    if founder_lost && world.founder_lost {
        return Ok(());
    }
    prop_assert_eq!(outlook, Some(Outlook::Settled));
    prop_assert!(world.converged());
    for _ in 0..QUIET_ROUNDS {
        world.look();
        let passed = world.pass(Trouble::None);
        world.live();
        prop_assert_eq!(passed.writes, 0, "a write at rest");
        prop_assert_eq!(passed.outlook, Outlook::Settled);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: histories(), ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_no_invariant_breaks_and_in_the_end_the_cluster_is_as_specified(
        size in prop::sample::select(vec![1, 3, 5, 7]),
        script in events(),
    ) {
        run(size, WITH_LEARNERS, &script)?;
    }
}

proptest! {
    // These etcds are few and old, and their histories the longest to play.
    #![proptest_config(ProptestConfig { cases: histories().div_ceil(4), ..ProptestConfig::default() })]

    #[test]
    fn the_same_holds_for_an_etcd_that_knows_no_learners(
        size in prop::sample::select(vec![1, 3, 5, 7]),
        script in events(),
    ) {
        run(size, WITHOUT_LEARNERS, &script)?;
    }
}

/// Few in a plain `cargo test`; CI asks for more.
fn histories() -> u32 {
    std::env::var("SIMULATED_HISTORIES")
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(500)
}
