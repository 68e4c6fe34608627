//! A scenario, and the table a suite is made of.

use std::fmt;

use futures::future::BoxFuture;

use crate::Context;

pub type Outcome = anyhow::Result<()>;

type Play = for<'a> fn(&'a Context) -> BoxFuture<'a, Outcome>;

#[derive(Clone, Copy)]
pub struct Scenario {
    /// The function's path below the suite, as in `admission::an_even_size_is_refused`.
    pub name: &'static str,
    pub(crate) alone: bool,
    pub(crate) play: Play,
}

impl Scenario {
    pub const fn new(name: &'static str, play: Play) -> Self {
        Self {
            name,
            alone: false,
            play,
        }
    }

    /// Runs after all others and with nothing beside it: for what disturbs the operator itself.
    #[must_use]
    pub const fn alone(self) -> Self {
        Self {
            alone: true,
            ..self
        }
    }
}

impl fmt::Debug for Scenario {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Scenario")
            .field("name", &self.name)
            .field("alone", &self.alone)
            .finish_non_exhaustive()
    }
}

/// `scenario!(module::function)`: the function's path is its name in the output and for the filter.
/// A scenario that is written but not listed is dead code, and the compiler says so.
#[macro_export]
macro_rules! scenario {
    ($module:ident :: $function:ident) => {
        $crate::Scenario::new(
            concat!(stringify!($module), "::", stringify!($function)),
            |context| ::std::boxed::Box::pin($module::$function(context)),
        )
    };
}

/// A table of scenarios that may run beside each other.
#[macro_export]
macro_rules! scenarios {
    ($($module:ident :: $function:ident),* $(,)?) => { [$($crate::scenario!($module::$function)),*] };
}
