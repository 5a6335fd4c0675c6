//! What travels, and how it is cut into frames.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `cut` | bytes at any place, as packets |
//! | `load` | one frame while it is filled |
//! | `pio` | what the program wrote, waiting in order |
//! | `reads` | remote reads, of the reader and of who is read |
//! | `words` | read-modify-write operations on remote words |
//! | `barriers` | questions whether all before them has arrived |
//! | `writes` | writes from memory, among those of the program |
//! | `dma` | queues of requests to the DMA engine, and their turns |

pub(crate) mod barriers;
pub(crate) mod cut;
pub(crate) mod dma;
pub(crate) mod load;
pub(crate) mod pio;
pub(crate) mod reads;
pub(crate) mod words;
pub(crate) mod writes;
