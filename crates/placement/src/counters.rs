//! Counters that know their names: declared once, added up and told one by one.

/// One of the counters of a struct that [`counters!`](crate::counters!) declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The name of its field.
    pub name: &'static str,
    /// What it counts: the documentation of its field, in one line.
    pub help: &'static str,
    /// How much it is.
    pub value: u64,
}

/// Declares a struct of `u64` counters that only grow, with `AddAssign` (those of several
/// engines added up) and `counters`, which gives each with its name and its documentation: so
/// that anyone who shows or exports them forgets none.
///
/// ```
/// use landfall_placement::{Counter, counters};
///
/// counters! {
///     /// What a queue did.
///     #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
///     pub struct QueueStats {
///         /// Elements that came.
///         pub came: u64,
///         /// Elements that found no room,
///         /// and are gone.
///         pub dropped: u64,
///     }
/// }
///
/// let mut all = QueueStats { came: 3, dropped: 1 };
/// all += QueueStats { came: 4, ..QueueStats::default() };
/// let counters: Vec<Counter> = all.counters().collect();
/// assert_eq!((counters[0].name, counters[0].value), ("came", 7));
/// assert_eq!(counters[1].help, " Elements that found no room, and are gone.");
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$about:meta])*
        $visible:vis struct $name:ident {
            $($(#[doc = $help:literal])+ pub $field:ident: u64,)+
        }
    ) => {
        $(#[$about])*
        $visible struct $name {
            $($(#[doc = $help])+ pub $field: u64,)+
        }

        /// Those of several, added up.
        impl ::core::ops::AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)+
            }
        }

        impl $name {
            /// Each counter, with its name and what it counts.
            pub fn counters(&self) -> impl Iterator<Item = $crate::Counter> + use<> {
                [$($crate::Counter {
                    name: stringify!($field),
                    help: concat!($($help),+),
                    value: self.$field,
                }),+]
                .into_iter()
            }
        }
    };
}
