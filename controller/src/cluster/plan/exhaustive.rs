//! Every short story of a small cluster: three members, two faults, a controller that dies between any two writes or acts on
//! an old cache, at every moment there is. In every situation that can be reached the invariants hold, and from every one
//! of them the cluster converges once it is left alone.

use std::{
    collections::HashSet,
    fmt,
    hash::{Hash, Hasher},
    io::Write as _,
    sync::{Mutex, PoisonError},
};

use stateright::{Checker, Model, Property};

use super::model::{Event, Trouble, WITH_LEARNERS, World};
use crate::cluster::step::{Outlook, Reason};

/// What may still go wrong in a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Budget {
    faults: u8,
    /// Deaths of the controller, and looks at an old cache.
    slips: u8,
}

#[derive(Clone)]
struct Situation {
    world: World,
    budget: Budget,
}

impl Hash for Situation {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.world.key(), self.budget).hash(hasher);
    }
}

impl PartialEq for Situation {
    fn eq(&self, other: &Self) -> bool {
        self.budget == other.budget && self.world.key() == other.world.key()
    }
}

impl fmt::Debug for Situation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} {:?}", self.budget, self.world.broken)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Action {
    /// The controller looks, acts, and time goes on.
    Pass,
    /// It dies after so many writes.
    PassAndDie(u8),
    /// Its cache has not followed.
    PassOnAnOldCache,
    Fault(Event),
}

struct Stories {
    size: i32,
    budget: Budget,
    /// Situations from which the cluster is known to converge.
    converging: Mutex<HashSet<u64>>,
}

impl Stories {
    fn of(size: i32, budget: Budget) -> Self {
        Self {
            size,
            budget,
            converging: Mutex::default(),
        }
    }

    /// Left alone, the cluster becomes what the spec asks for; a founder lost before the first answer is left to a person.
    fn converges(&self, situation: &Situation) -> bool {
        let mut known = self
            .converging
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut world = situation.world.clone();
        let mut passed = Vec::new();
        world.happen(Event::Thaw);
        for _ in 0..200 {
            let key = world.key();
            if known.contains(&key) {
                known.extend(passed);
                return true;
            }
            passed.push(key);
            world.look();
            let outlook = world.pass(Trouble::None).outlook;
            world.live();
            let left_to_a_person = world.founder_lost
                && matches!(
                    outlook,
                    Outlook::Stalled {
                        reason: Reason::FounderLost,
                        ..
                    }
                );
            if left_to_a_person || (outlook == Outlook::Settled && world.converged()) {
                known.extend(passed);
                return true;
            }
        }
        false
    }
}

impl Model for Stories {
    type State = Situation;
    type Action = Action;

    fn init_states(&self) -> Vec<Situation> {
        vec![Situation {
            world: World::new(self.size, WITH_LEARNERS),
            budget: self.budget,
        }]
    }

    fn actions(&self, situation: &Situation, actions: &mut Vec<Action>) {
        actions.push(Action::Pass);
        if situation.budget.slips > 0 {
            let mut world = situation.world.clone();
            world.look();
            let writes = world.pass(Trouble::None).writes;
            actions.extend((0..writes).map(Action::PassAndDie));
            if situation.world.cache_is_old() {
                actions.push(Action::PassOnAnOldCache);
            }
        }
        if situation.budget.faults > 0 {
            let members = u8::try_from(self.size).unwrap_or(u8::MAX);
            for member in 0..members {
                actions.extend(
                    [
                        Event::DeletePod(member),
                        Event::DeleteClaim(member),
                        Event::Wipe(member),
                        Event::LoseFounder(member),
                        Event::Crash(member),
                        Event::Freeze(member),
                    ]
                    .map(Action::Fault),
                );
            }
            actions.extend(
                [
                    Event::Thaw,
                    Event::Resize(0),
                    Event::Resize(1),
                    Event::SetVersion(1),
                ]
                .map(Action::Fault),
            );
        }
    }

    fn next_state(&self, situation: &Situation, action: Action) -> Option<Situation> {
        let Situation {
            mut world,
            mut budget,
        } = situation.clone();
        match action {
            Action::Pass => {
                world.look();
                world.pass(Trouble::None);
            }
            Action::PassAndDie(writes) => {
                budget.slips -= 1;
                world.look();
                world.pass(Trouble::Dies(writes));
            }
            Action::PassOnAnOldCache => {
                budget.slips -= 1;
                world.pass(Trouble::None);
            }
            Action::Fault(event) => {
                let before = world.key();
                world.happen(event);
                if world.key() == before {
                    return None;
                }
                budget.faults -= 1;
            }
        }
        world.live();
        Some(Situation { world, budget })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no invariant breaks", |_, situation: &Situation| {
                situation.world.broken.is_none()
            }),
            Property::always("left alone, it converges", Self::converges),
        ]
    }
}

fn tell_every_story(what: &str, stories: Stories) {
    let checked = stories.checker().threads(2).spawn_bfs().join();
    checked.assert_properties();
    // Not `println!`, which is shown only for a test that failed.
    let _ = writeln!(
        std::io::stderr(),
        "{what}: {} situations, {} of them different, all sound",
        checked.state_count(),
        checked.unique_state_count()
    );
}

#[test]
fn every_story_of_three_members_with_two_faults_and_a_crash_anywhere_ends_well() {
    tell_every_story(
        "three members, two faults, a crash or an old cache anywhere",
        Stories::of(
            3,
            Budget {
                faults: 2,
                slips: 1,
            },
        ),
    );
}

#[test]
fn every_story_of_three_members_with_a_fault_and_two_crashes_anywhere_ends_well() {
    tell_every_story(
        "three members, a fault, two crashes or old caches anywhere",
        Stories::of(
            3,
            Budget {
                faults: 1,
                slips: 2,
            },
        ),
    );
}
