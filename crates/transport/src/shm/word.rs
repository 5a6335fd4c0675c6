//! [`Word`]: what the protocols of this module need of an atomic word.
//!
//! They are written once over this trait: on the words of shared memory they run,
//! on the words of `loom` they are tried in every order.

use std::sync::atomic::{AtomicU64, Ordering};

/// An atomic word of 64 bits, and the fence that goes with it.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn swap(&self, value: u64, order: Ordering) -> u64;
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    fn fetch_or(&self, value: u64, order: Ordering) -> u64;
    fn fetch_and(&self, value: u64, order: Ordering) -> u64;
    fn fence(order: Ordering);
}

macro_rules! word {
    ($word:ty, $fence:path) => {
        impl Word for $word {
            #[inline]
            fn load(&self, order: Ordering) -> u64 {
                <$word>::load(self, order)
            }

            #[inline]
            fn store(&self, value: u64, order: Ordering) {
                <$word>::store(self, value, order);
            }

            #[inline]
            fn swap(&self, value: u64, order: Ordering) -> u64 {
                <$word>::swap(self, value, order)
            }

            #[inline]
            fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
                <$word>::fetch_add(self, value, order)
            }

            #[inline]
            fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
                <$word>::fetch_or(self, value, order)
            }

            #[inline]
            fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
                <$word>::fetch_and(self, value, order)
            }

            #[inline]
            fn fence(order: Ordering) {
                $fence(order);
            }
        }
    };
}

word!(AtomicU64, std::sync::atomic::fence);
#[cfg(all(test, loom))]
word!(loom::sync::atomic::AtomicU64, loom::sync::atomic::fence);
