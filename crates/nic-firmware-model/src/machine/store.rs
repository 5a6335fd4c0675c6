//! Storage that somebody hands in: borrowed on an adapter, owned on a host.

use core::ops::{Deref, DerefMut};

/// A table of fixed length, in memory that was handed in.
///
/// On a bare machine that is a slice of a static; where there is an allocator it
/// may own its memory, so that an adapter in a simulation borrows from nobody.
#[derive(Debug)]
pub enum Store<'s, T> {
    /// Somebody else's memory.
    Borrowed(&'s mut [T]),
    /// Its own memory.
    #[cfg(feature = "std")]
    Owned(Box<[T]>),
}

#[cfg(feature = "std")]
impl<T> Store<'_, T> {
    /// So many, each made by `make`.
    #[must_use]
    pub fn filled_with(count: usize, make: impl FnMut() -> T) -> Self {
        Self::Owned(std::iter::repeat_with(make).take(count).collect())
    }
}

impl<'s, T> From<&'s mut [T]> for Store<'s, T> {
    fn from(slice: &'s mut [T]) -> Self {
        Self::Borrowed(slice)
    }
}

impl<T> Deref for Store<'_, T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        match self {
            Self::Borrowed(slice) => slice,
            #[cfg(feature = "std")]
            Self::Owned(slice) => slice,
        }
    }
}

impl<T> DerefMut for Store<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Borrowed(slice) => slice,
            #[cfg(feature = "std")]
            Self::Owned(slice) => slice,
        }
    }
}
