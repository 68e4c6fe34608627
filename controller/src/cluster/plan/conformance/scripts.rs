//! What is played on both.

use crate::etcd::AlarmKind::{self, Corrupt, NoSpace};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Line {
    /// All founders at once.
    Found(&'static [&'static str]),
    /// The first start of an added member.
    Join(&'static str),
    /// A start as a member that has served before: told of itself alone.
    Resume(&'static str),
    /// The process is killed.
    Stop(&'static str),
    /// The process is killed and its disk emptied.
    Wipe(&'static str),
    AddLearner(&'static str),
    AddVoter(&'static str),
    Promote(&'static str),
    Remove(&'static str),
    MoveLeader(&'static str),
    Read,
    Put,
    Defragment(&'static str),
    Raise(AlarmKind, &'static str),
    Disarm(AlarmKind, &'static str),
}

use Line::{
    AddLearner, AddVoter, Defragment, Disarm, Found, Join, MoveLeader, Promote, Put, Raise, Read,
    Remove, Resume, Stop, Wipe,
};

pub(super) const SCRIPTS: [(&str, &[Line]); 5] = [
    ("a member's life", MEMBERS_LIFE),
    ("a quorum lost and found", QUORUM),
    ("alarms", ALARMS),
    ("one, two, one", ONE),
    ("five, one down", FIVE),
];

const MEMBERS_LIFE: &[Line] = &[
    Found(&["a", "b", "c"]),
    Put,
    MoveLeader("a"),
    AddLearner("d"),
    // Whoever did not hear the reply finds it in the list, and etcd does not add it again.
    AddLearner("d"),
    AddLearner("e"),
    Promote("d"),
    MoveLeader("d"),
    Join("d"),
    Promote("d"),
    Promote("d"),
    Remove("nobody"),
    Promote("nobody"),
    MoveLeader("a"),
    // The leader itself.
    Remove("a"),
    Put,
    Resume("a"),
    // On an empty disk a member that has served does not come back under its old address.
    Wipe("c"),
    Resume("c"),
    AddLearner("e"),
    AddVoter("e"),
    Remove("c"),
    AddLearner("e"),
    Remove("e"),
    Put,
];

const QUORUM: &[Line] = &[
    Found(&["a", "b", "c"]),
    MoveLeader("a"),
    Stop("b"),
    Read,
    Put,
    AddLearner("d"),
    Remove("c"),
    Stop("c"),
    Read,
    Put,
    AddLearner("d"),
    Remove("b"),
    MoveLeader("a"),
    Defragment("a"),
    Defragment("b"),
    Resume("b"),
    Read,
    Resume("c"),
    Put,
    AddLearner("d"),
];

const ALARMS: &[Line] = &[
    Found(&["a", "b", "c"]),
    Raise(NoSpace, "a"),
    Put,
    Read,
    Defragment("b"),
    Disarm(NoSpace, "a"),
    Put,
    Raise(Corrupt, "b"),
    Put,
    // What the operator asks before it believes a member list.
    Read,
    MoveLeader("c"),
    Remove("b"),
    Put,
    Disarm(Corrupt, "b"),
    Put,
];

const ONE: &[Line] = &[
    Found(&["a"]),
    Remove("a"),
    AddLearner("b"),
    Join("b"),
    Put,
    Promote("b"),
    Put,
    Stop("b"),
    Read,
    Resume("b"),
    Put,
    MoveLeader("a"),
    Remove("b"),
    Put,
    // Without a learner's time: nobody serves until the second has started.
    AddVoter("c"),
    Read,
    Join("c"),
    Put,
];

const FIVE: &[Line] = &[
    Found(&["a", "b", "c", "d", "e"]),
    MoveLeader("a"),
    Stop("e"),
    // Older releases refuse, newer ones count who is needed.
    AddLearner("f"),
    Remove("e"),
    Put,
];
