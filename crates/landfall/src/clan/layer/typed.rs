//! Queues of values: [`Sender`] and [`Receiver`] over [`queue`], whose elements are values of
//! one type; and [`Layout`], which says how a type lies in memory.
//!
//! Both sides say what they take an element for, by a fingerprint of its [layout](Layout): a
//! program that was compiled with another version of a type, or is written in another
//! language, and takes the bytes for something else, gets [`Error::OtherLayout`] and not
//! numbers without meaning.
//!
//! The values are those of the traits of `zerocopy`: every pattern of bytes is one (so nothing
//! that a peer writes can be undefined behaviour), and none has bytes between its fields.
//!
//! ```
//! use landfall::clan::Threads;
//! use landfall::clan::layer::typed::{Config, Receiver, Sender};
//! use zerocopy::{FromBytes, Immutable, IntoBytes};
//!
//! #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
//! #[repr(C)]
//! struct Quote {
//!     price: f64,
//!     size: u32,
//!     venue: [u8; 4],
//! }
//! landfall::layout!(Quote { price: f64, size: u32, venue: [u8; 4] });
//!
//! let (here, there) = Threads::pair()?;
//! let config = Config::new(1024);
//! let sender = Sender::<_, Quote>::open(&here, config)?;
//! let receiver = Receiver::<_, Quote>::open(&there, config)?;
//! let (to_receiver, to_sender) = (receiver.cookie(), sender.cookie());
//! let (mut sender, mut receiver) = (sender.connect(&to_receiver)?, receiver.connect(&to_sender)?);
//!
//! let quote = Quote { price: 99.5, size: 100, venue: *b"XETR" };
//! sender.put(&quote, None)?;
//! sender.publish()?;
//! assert_eq!(receiver.get(None)?, quote);
//! # Ok::<(), landfall::clan::Error>(())
//! ```

use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use landfall_transport::Wait;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::queue;
use super::waiting::{Connect, Half, Joint};
use crate::clan::{Error, Fabric};

/// How a type lies in memory, as a text that is the same in every language.
///
/// | text | what lies there |
/// | --- | --- |
/// | `u8`, `i8` | a byte |
/// | `u32`, `f64`, … | a number, least byte first |
/// | `u32be`, `f64be`, … | a number, greatest byte first |
/// | `[u8;4]` | four of them, one behind the other |
/// | `{price:f64@0,size:u32@8}16` | fields with their places, and the length of the whole |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A number.
    Number(&'static str),
    /// This many of one kind.
    Array(&'static Self, usize),
    /// Fields.
    Record {
        /// How many bytes the whole has.
        size: usize,
        /// The fields, as they were declared.
        fields: &'static [Field],
    },
}

/// A field of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its first byte.
    pub offset: usize,
    /// What lies there.
    pub shape: &'static Shape,
}

/// The offset basis and the prime of FNV-1a with 64 bits.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

const fn fold(mut hash: u64, text: &str) -> u64 {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(PRIME);
        at += 1;
    }
    hash
}

const fn fold_number(hash: u64, number: usize) -> u64 {
    const DIGITS: [&str; 10] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let hash = if number >= 10 { fold_number(hash, number / 10) } else { hash };
    fold(hash, DIGITS[number % 10])
}

/// The fingerprint of a layout that is written down: FNV-1a with 64 bits over its text. What
/// another language declares is compared by it. It is never zero.
#[must_use]
pub const fn fingerprint_of(text: &str) -> u64 {
    nonzero(fold(BASIS, text))
}

/// Zero says that nothing was said.
const fn nonzero(hash: u64) -> u64 {
    if hash == 0 { 1 } else { hash }
}

impl Shape {
    /// The fingerprint: that of its text.
    #[must_use]
    pub const fn fingerprint(&self) -> u64 {
        nonzero(self.fold(BASIS))
    }

    const fn fold(&self, hash: u64) -> u64 {
        match self {
            Self::Number(name) => fold(hash, name),
            Self::Array(shape, count) => {
                let hash = fold(shape.fold(fold(hash, "[")), ";");
                fold(fold_number(hash, *count), "]")
            }
            Self::Record { size, fields } => {
                let mut hash = fold(hash, "{");
                let mut nth = 0;
                while nth < fields.len() {
                    let Field { name, offset, shape } = &fields[nth];
                    hash = fold(fold(hash, if nth > 0 { "," } else { "" }), name);
                    hash = fold(shape.fold(fold(hash, ":")), "@");
                    hash = fold_number(hash, *offset);
                    nth += 1;
                }
                fold_number(fold(hash, "}"), *size)
            }
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(name) => f.write_str(name),
            Self::Array(shape, count) => write!(f, "[{shape};{count}]"),
            Self::Record { size, fields } => {
                f.write_str("{")?;
                for (nth, Field { name, offset, shape }) in fields.iter().enumerate() {
                    let comma = if nth > 0 { "," } else { "" };
                    write!(f, "{comma}{name}:{shape}@{offset}")?;
                }
                write!(f, "}}{size}")
            }
        }
    }
}

/// A type whose layout is known. [`layout!`](crate::layout) implements it for structures.
pub trait Layout {
    /// The layout.
    const SHAPE: Shape;
    /// Its fingerprint, which both sides compare.
    const FINGERPRINT: u64 = Self::SHAPE.fingerprint();
}

macro_rules! numbers {
    ($($type:ident)+) => {$(
        impl Layout for $type {
            const SHAPE: Shape = Shape::Number(if cfg!(target_endian = "little") || size_of::<$type>() == 1 {
                stringify!($type)
            } else {
                concat!(stringify!($type), "be")
            });
        }
    )+};
}
numbers!(u8 i8 u16 i16 u32 i32 u64 i64 u128 i128 f32 f64);

impl<T: Layout, const N: usize> Layout for [T; N] {
    const SHAPE: Shape = Shape::Array(&T::SHAPE, N);
}

/// Declares the layout of a structure, for [`typed`](crate::clan::layer::typed) queues: its
/// name, and all of its fields with their types. A wrong declaration does not compile.
#[macro_export]
macro_rules! layout {
    ($type:ident { $($field:ident: $kind:ty),+ $(,)? }) => {
        impl $crate::clan::layer::typed::Layout for $type {
            const SHAPE: $crate::clan::layer::typed::Shape =
                $crate::clan::layer::typed::Shape::Record {
                    size: ::core::mem::size_of::<$type>(),
                    fields: &[$($crate::clan::layer::typed::Field {
                        name: ::core::stringify!($field),
                        offset: ::core::mem::offset_of!($type, $field),
                        shape: &<$kind as $crate::clan::layer::typed::Layout>::SHAPE,
                    }),+],
                };
        }
        const _: fn(&$type) = |value| {
            let $type { $($field),+ } = value;
            $(let _: &$kind = $field;)+
        };
    };
}

/// What can be an element: a value of every pattern of bytes, whose layout is known.
pub trait Element: Layout + FromBytes + IntoBytes + Immutable {}
impl<T: Layout + FromBytes + IntoBytes + Immutable> Element for T {}

/// What both sides agree on: how many elements are under way. The rest each side chooses for
/// itself.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    capacity: u32,
    batch: u32,
    within: Duration,
    wait: Wait,
}

impl Config {
    /// This many elements under way; each is published by itself.
    #[must_use]
    pub const fn new(capacity: u32) -> Self {
        Self { capacity, batch: 1, within: Duration::ZERO, wait: Wait::BALANCED }
    }

    /// See [`queue::Config::batch`].
    #[must_use]
    pub const fn batch(self, most: u32, within: Duration) -> Self {
        Self { batch: most, within, ..self }
    }

    /// How this side waits.
    #[must_use]
    pub const fn wait(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    fn of<T: Element>(&self) -> Result<queue::Config, Error> {
        let len = u32::try_from(size_of::<T>());
        let len = len.map_err(|_| Error::BadConfig("an element has at most 4 GiB"))?;
        let config = queue::Config::new(len, self.capacity).batch(self.batch, self.within);
        Ok(config.wait(self.wait).layout(T::FINGERPRINT))
    }
}

/// Puts values in.
#[derive(Debug)]
pub struct Sender<F: Fabric, T> {
    queue: queue::Sender<F>,
    of: PhantomData<fn(T)>,
}

/// Takes values out.
#[derive(Debug)]
pub struct Receiver<F: Fabric, T> {
    queue: queue::Receiver<F>,
    of: PhantomData<fn() -> T>,
}

macro_rules! connect {
    ($side:ident) => {
        impl<F: Fabric, T: Element> Connect<F> for $side<F, T> {
            type Config = Config;

            fn ours(config: &Config) -> Result<u64, Error> {
                queue::$side::<F>::ours(&config.of::<T>()?)
            }

            fn theirs(config: &Config) -> Result<u64, Error> {
                queue::$side::<F>::theirs(&config.of::<T>()?)
            }

            fn join(joint: Joint<F>, config: Config) -> Result<Self, Error> {
                let queue = queue::$side::join(joint, config.of::<T>()?)?;
                Ok(Self { queue, of: PhantomData })
            }
        }

        impl<F: Fabric, T: Element> $side<F, T> {
            /// This side's half.
            ///
            /// # Errors
            /// Those of [`Fabric::expose`], or the configuration is invalid.
            pub fn open(fabric: &F, config: Config) -> Result<Half<F, Self>, Error> {
                Half::open(fabric, config)
            }

            /// The queue below, for what this does not offer: its elements are the bytes of
            /// the values.
            pub const fn as_queue(&mut self) -> &mut queue::$side<F> {
                &mut self.queue
            }
        }
    };
}
connect!(Sender);
connect!(Receiver);

impl<F: Fabric, T: Element> Sender<F, T> {
    /// Puts a value in if there is room; true if there was.
    ///
    /// # Errors
    /// Those of [`queue::Sender::try_put`].
    #[inline]
    pub fn try_put(&mut self, value: &T) -> Result<bool, Error> {
        self.queue.try_put(value.as_bytes())
    }

    /// Puts a value in once there is room.
    ///
    /// # Errors
    /// Those of [`queue::Sender::put`].
    #[inline]
    pub fn put(&mut self, value: &T, deadline: Option<Instant>) -> Result<(), Error> {
        self.queue.put(value.as_bytes(), deadline)
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`queue::Sender::put`].
    pub async fn put_async(&mut self, value: &T) -> Result<(), Error> {
        self.queue.put_async(value.as_bytes()).await
    }

    /// See [`queue::Sender::publish`].
    ///
    /// # Errors
    /// Those of [`queue::Sender::publish`].
    pub fn publish(&mut self) -> Result<(), Error> {
        self.queue.publish()
    }
}

impl<F: Fabric, T: Element> Receiver<F, T> {
    /// Takes a value out if one is there.
    ///
    /// # Errors
    /// Those of [`queue::Receiver::try_get`].
    #[inline]
    pub fn try_get(&mut self) -> Result<Option<T>, Error> {
        let mut value = T::new_zeroed();
        Ok(self.queue.try_get(value.as_mut_bytes())?.then_some(value))
    }

    /// Takes a value out once one is there.
    ///
    /// # Errors
    /// Those of [`queue::Receiver::get`].
    #[inline]
    pub fn get(&mut self, deadline: Option<Instant>) -> Result<T, Error> {
        let mut value = T::new_zeroed();
        self.queue.get(value.as_mut_bytes(), deadline)?;
        Ok(value)
    }

    /// The same for a task.
    ///
    /// # Errors
    /// Those of [`queue::Receiver::get`].
    pub async fn get_async(&mut self) -> Result<T, Error> {
        let mut value = T::new_zeroed();
        self.queue.get_async(value.as_mut_bytes()).await?;
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    struct Inner {
        flags: [u8; 8],
    }
    layout!(Inner { flags: [u8; 8] });

    #[derive(FromBytes, IntoBytes, Immutable)]
    #[repr(C)]
    struct Outer {
        price: f64,
        inner: [Inner; 12],
    }
    layout!(Outer { price: f64, inner: [Inner; 12] });

    #[test]
    fn the_fingerprint_is_that_of_the_text() {
        let text = "{price:f64@0,inner:[{flags:[u8;8]@0}8;12]@8}104";
        assert_eq!(Outer::SHAPE.to_string(), text);
        assert_eq!(Outer::FINGERPRINT, fingerprint_of(text));
        // FNV-1a's published vectors.
        assert_eq!(fingerprint_of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fingerprint_of("foobar"), 0x8594_4171_f739_67e8);
        assert_ne!(Outer::FINGERPRINT, Inner::FINGERPRINT);
    }
}
